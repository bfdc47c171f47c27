"""The SQS wire format in two protocols, driven by one table of actions. Pure."""
