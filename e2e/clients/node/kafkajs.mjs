// KafkaJS as a client of the matrix. It reads in groups only.
import kafkajs from 'kafkajs'
import { Holding, event, show, terminated } from './group.mjs'
import { args, batches } from './record.mjs'
import { secured } from './security.mjs'

const { Kafka, CompressionTypes, PartitionAssigners, logLevel } = kafkajs
const a = args()
const kafka = new Kafka({ clientId: a.name, brokers: [a.bootstrap], logLevel: logLevel.ERROR, ...secured(a) })

async function produce () {
  const producer = kafka.producer({ allowAutoTopicCreation: true, createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  for (const batch of batches(a)) {
    const messages = batch.map(r => ({ ...r, timestamp: String(r.timestamp) }))
    await producer.send({ topic: a.topic, acks: -1, compression: a.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None, messages })
  }
  await producer.disconnect()
}

function pairs (headers) {
  return Object.entries(headers ?? {}).flatMap(([name, value]) => [value].flat().map(each => [name, each]))
}

async function consume () {
  const consumer = kafka.consumer({ groupId: a.group ?? `kafkajs-reads-${a.topic}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [a.topic], fromBeginning: true })
  let left = a.count
  await new Promise(resolve => consumer.run({
    eachMessage: async ({ partition, message: m }) => {
      if (left > 0) show(partition, m.offset, m.timestamp, m.key, m.value, pairs(m.headers))
      if (--left === 0) resolve()
    }
  }))
  await consumer.disconnect()
}

async function group () {
  const consumer = kafka.consumer({
    groupId: a.group, sessionTimeout: a.sessionMs, rebalanceTimeout: 10000, heartbeatInterval: 1000,
    maxWaitTimeInMs: 250, partitionAssigners: [PartitionAssigners.roundRobin]
  })
  const holding = new Holding()
  const commit = () => holding.commit(positions => consumer.commitOffsets(
    [...positions].map(([partition, offset]) => ({ topic: a.topic, partition, offset: String(offset) }))))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    holding.revoked()
    holding.has(payload.memberAssignment[a.topic] ?? [])
  })
  consumer.on(consumer.events.REBALANCING, () => holding.revoked())
  const end = terminated()
  await consumer.connect()
  await consumer.subscribe({ topics: [a.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat, isRunning, isStale }) => {
      for (const message of batch.messages) {
        if (!isRunning() || isStale()) break
        holding.record(batch.partition, message.offset)
      }
      await commit()
      await heartbeat()
    },
    eachBatchAutoResolve: true
  })
  await end
  await consumer.stop()
  holding.revoked()
  await consumer.disconnect()
  event('left')
}

await { produce, consume, group }[a.mode]()
