// Sends records of which some have a timestamp and others none in one batch, and prints the offset
// of the first record of the last minute. usage: mixed.js BROKER TOPIC SENDS
const { Kafka, logLevel } = require('kafkajs');

const [broker, topic, sends] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING });

async function main() {
  const admin = kafka.admin();
  const producer = kafka.producer();
  await admin.connect();
  await producer.connect();
  const configEntries = [
    { name: 'retention.ms', value: '604800000' },
    { name: 'segment.bytes', value: '1048576' },
  ];
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, configEntries }] });
  const value = 'v'.repeat(30000);
  for (let send = 0; send < Number(sends); send += 1) {
    await producer.send({ topic, messages: [{ value, timestamp: '1672531200000' }, { value }] });
  }
  const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() - 60000);
  console.log(JSON.stringify({ offset: found.offset }));
  await producer.disconnect();
  await admin.disconnect();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
