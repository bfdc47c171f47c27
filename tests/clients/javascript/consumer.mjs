// sqs-consumer as its README has it: a queue's URL and a function. Ends when each message of "js-jobs"
// is done or has been given up, and prints what was done as JSON.
import { Consumer } from "sqs-consumer";

const seen = {};
const errors = [];
let done = 0;

const app = Consumer.create({
  queueUrl: process.env.CLIENTS_QUEUE_URL,
  batchSize: 10,
  waitTimeSeconds: 20,
  visibilityTimeout: 60,
  heartbeatInterval: 1,
  terminateVisibilityTimeout: true, // what failed is there again at once
  messageAttributeNames: ["All"],
  messageSystemAttributeNames: ["ApproximateReceiveCount"],
  strictReturn: true,
  handleMessage: async (message) => {
    const { job, fails, ms } = JSON.parse(message.Body);
    const attempt = Number(message.Attributes.ApproximateReceiveCount);
    (seen[job] ??= []).push([attempt, message.MessageAttributes.tenant.StringValue]);
    await new Promise((resolve) => setTimeout(resolve, ms));
    if (attempt <= fails) throw new Error(`job ${job} fails`);
    return message;
  },
});
app.on("message_processed", () => finished());
app.on("processing_error", (error, message) => {
  const attempt = Number(message.Attributes.ApproximateReceiveCount);
  if (attempt === Number(process.env.CLIENTS_ATTEMPTS)) finished();
});
app.on("error", (error) => errors.push(String(error)));
app.on("timeout_error", (error) => errors.push(String(error)));

function finished() {
  done += 1;
  if (done === Number(process.env.CLIENTS_JOBS)) setImmediate(leave);
}

// Not before the last one is deleted; then an idle poll is cut off.
function leave() {
  app.on("empty", stop);
  app.on("response_processed", stop);
  if (!app.status.isPolling) stop();
}

function stop() {
  app.removeAllListeners("empty");
  app.removeAllListeners("response_processed");
  app.stop({ abort: true });
}

app.on("stopped", () => console.log(JSON.stringify({ seen, errors })));
app.start();
