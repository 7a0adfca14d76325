// KafkaJS as a producer of the matrix.
import kafkajs from 'kafkajs'
import { args, batches } from './record.mjs'

const { Kafka, CompressionTypes, logLevel } = kafkajs
const a = args()
const kafka = new Kafka({ clientId: a.name, brokers: [a.bootstrap], logLevel: logLevel.ERROR })
const producer = kafka.producer({ allowAutoTopicCreation: true, createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
await producer.connect()
for (const batch of batches(a)) {
  const messages = batch.map(r => ({ ...r, timestamp: String(r.timestamp) }))
  await producer.send({ topic: a.topic, acks: -1, compression: a.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None, messages })
}
await producer.disconnect()
