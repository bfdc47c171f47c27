"""The rules, errors and formats of SQS, shared by the SQS server and the SQS relay. Pure."""
