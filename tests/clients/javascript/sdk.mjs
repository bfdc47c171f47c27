// The JavaScript SDK v3: every kind of call an application makes. Ends with 0 and says nothing, or
// with the first assertion that does not hold.
import assert from "node:assert/strict";
import {
  CancelMessageMoveTaskCommand,
  ChangeMessageVisibilityCommand,
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  DeleteQueueCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ListMessageMoveTasksCommand,
  ListQueueTagsCommand,
  PurgeQueueCommand,
  PurgeQueueInProgress,
  QueueDoesNotExist,
  ReceiveMessageCommand,
  SQSClient,
  SendMessageBatchCommand,
  SendMessageCommand,
  StartMessageMoveTaskCommand,
  TagQueueCommand,
  UnsupportedOperation,
  paginateListDeadLetterSourceQueues,
  paginateListQueues,
} from "@aws-sdk/client-sqs";

// The server's URL, the key and the region are found in the environment, as at AWS.
const sqs = new SQSClient({ maxAttempts: 1 });
const ask = (command) => sqs.send(command);

async function create(name, attributes = {}, tags = undefined) {
  const made = await ask(
    new CreateQueueCommand({ QueueName: name, Attributes: attributes, tags }),
  );
  return made.QueueUrl;
}

async function arnOf(url) {
  const told = await ask(
    new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: ["QueueArn"] }),
  );
  return told.Attributes.QueueArn;
}

async function waiting(url) {
  const name = "ApproximateNumberOfMessages";
  const told = await ask(
    new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: [name] }),
  );
  return Number(told.Attributes[name]);
}

async function receive(url, more = {}) {
  const answer = await ask(
    new ReceiveMessageCommand({ QueueUrl: url, WaitTimeSeconds: 20, ...more }),
  );
  return answer.Messages ?? [];
}

async function messages() {
  const url = await create("js-messages");
  const found = await ask(new GetQueueUrlCommand({ QueueName: "js-messages" }));
  assert.equal(found.QueueUrl, url);
  const attributes = {
    text: { DataType: "String", StringValue: "grüße €" },
    count: { DataType: "Number.int", StringValue: "7" },
    blob: { DataType: "Binary", BinaryValue: Uint8Array.from({ length: 256 }, (_, n) => n) },
  };
  const body = '<ahoy> & \r\n "🚢"';
  // The poll is open before the message is there. The SDK itself checks the MD5 of both.
  const poll = receive(url, { MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"] });
  const sent = await ask(
    new SendMessageCommand({ QueueUrl: url, MessageBody: body, MessageAttributes: attributes }),
  );
  const [message] = await poll;
  assert.equal(message.Body, body);
  assert.equal(message.MessageId, sent.MessageId);
  assert.deepEqual(message.MessageAttributes, attributes);
  assert.equal(message.Attributes.ApproximateReceiveCount, "1");
  await ask(
    new ChangeMessageVisibilityCommand({
      QueueUrl: url,
      ReceiptHandle: message.ReceiptHandle,
      VisibilityTimeout: 0,
    }),
  );
  const [again] = await receive(url);
  assert.equal(again.MessageId, message.MessageId);
  await ask(new PurgeQueueCommand({ QueueUrl: url }));
  await assert.rejects(ask(new PurgeQueueCommand({ QueueUrl: url })), PurgeQueueInProgress);
  assert.equal(await waiting(url), 0);
}

async function batches() {
  const url = await create("js-batches");
  const entries = Array.from({ length: 10 }, (_, n) => ({ Id: `n${n}`, MessageBody: `body ${n}` }));
  entries[9].DelaySeconds = 901;
  const sent = await ask(new SendMessageBatchCommand({ QueueUrl: url, Entries: entries }));
  assert.equal(sent.Successful.length, 9);
  assert.deepEqual(sent.Failed.map((entry) => entry.Id), ["n9"]);
  const bodies = [];
  while (bodies.length < 9) {
    const got = await receive(url, { MaxNumberOfMessages: 10 });
    bodies.push(...got.map((message) => message.Body));
    const gone = await ask(
      new DeleteMessageBatchCommand({
        QueueUrl: url,
        Entries: got.map(({ ReceiptHandle }, n) => ({ Id: String(n), ReceiptHandle })),
      }),
    );
    assert.equal(gone.Failed, undefined);
  }
  assert.deepEqual(bodies.sort(), entries.slice(0, 9).map((entry) => entry.MessageBody));
}

async function fifo() {
  const url = await create("js.fifo", { FifoQueue: "true", ContentBasedDeduplication: "true" });
  for (const body of ["1", "2", "2", "3"]) {
    const sent = await ask(
      new SendMessageCommand({ QueueUrl: url, MessageBody: body, MessageGroupId: "g" }),
    );
    assert.match(sent.SequenceNumber, /^\d{20}$/);
  }
  const got = await receive(url, { MaxNumberOfMessages: 10, AttributeNames: ["All"] });
  assert.deepEqual(got.map((message) => message.Body), ["1", "2", "3"]);
  assert.ok(got.every((message) => message.Attributes.MessageGroupId === "g"));
}

async function deadLetters() {
  const dead = await create("js-dead");
  const policy = JSON.stringify({ deadLetterTargetArn: await arnOf(dead), maxReceiveCount: 1 });
  const url = await create("js-work", { RedrivePolicy: policy });
  await ask(new SendMessageCommand({ QueueUrl: url, MessageBody: "bad" }));
  assert.equal((await receive(url, { VisibilityTimeout: 0 })).length, 1);
  do {
    // A receive that meets others' locks may pass it by once.
    assert.deepEqual(await receive(url, { WaitTimeSeconds: 0 }), []);
  } while ((await waiting(dead)) !== 1);
  const source = { SourceArn: await arnOf(dead) };
  const { TaskHandle } = await ask(new StartMessageMoveTaskCommand(source));
  for (;;) {
    const { Results } = await ask(new ListMessageMoveTasksCommand(source));
    if (Results[0].Status === "COMPLETED") break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await waiting(url), 1);
  const late = ask(new CancelMessageMoveTaskCommand({ TaskHandle }));
  await assert.rejects(late, UnsupportedOperation);
  const sources = [];
  for await (const page of paginateListDeadLetterSourceQueues({ client: sqs }, { QueueUrl: dead })) {
    sources.push(...page.queueUrls);
  }
  assert.deepEqual(sources, [url]);
}

async function queues() {
  const made = [];
  for (const n of [0, 1, 2]) made.push(await create(`js-page-${n}`, {}, { n: String(n) }));
  const found = [];
  const asked = { QueueNamePrefix: "js-page-" };
  for await (const page of paginateListQueues({ client: sqs, pageSize: 2 }, asked)) {
    found.push(...page.QueueUrls);
  }
  assert.deepEqual(found.sort(), made.sort());
  await ask(new TagQueueCommand({ QueueUrl: made[0], Tags: { team: "blue" } }));
  const tags = await ask(new ListQueueTagsCommand({ QueueUrl: made[0] }));
  assert.deepEqual(tags.Tags, { n: "0", team: "blue" });
  await ask(new DeleteQueueCommand({ QueueUrl: made[0] }));
  await assert.rejects(ask(new GetQueueUrlCommand({ QueueName: "js-page-0" })), (error) => {
    assert.ok(error instanceof QueueDoesNotExist);
    assert.equal(error.$metadata.httpStatusCode, 400);
    return true;
  });
}

await Promise.all([messages(), batches(), fifo(), deadLetters(), queues()]);
sqs.destroy();
