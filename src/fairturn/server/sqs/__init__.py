"""The SQS door: any AWS SDK is a client.

    wire       requests from bytes and results to bytes, for both of SQS's protocols. Pure
    actions    one function for each action
    traffic    coalesced sends, receives and deletes; long polls; the in-flight limit

`attribute_rules` and `redrive` check requests without the database, as `fairturn.sqs` does.
"""
