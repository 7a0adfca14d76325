// Copies one topic to another exactly once with KafkaJS; see e2e/clients/README.md.
import { Kafka, logLevel } from 'kafkajs'

const args = Object.fromEntries(
  process.argv.slice(2).flatMap((word, i, all) => (i % 2 ? [] : [[word.slice(2), all[i + 1]]])))
const kafka = new Kafka({ brokers: args.bootstrap.split(","), logLevel: logLevel.ERROR })
let stopping = false
process.on('SIGTERM', () => { stopping = true })

// What a batch has left open, the next producer of the id aborts when it begins.
async function copy (batch) {
  const producer = kafka.producer({
    transactionalId: `${args.id}-${batch.partition}`, maxInFlightRequests: 1, idempotent: true, transactionTimeout: 10000
  })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    try {
      await transaction.send({
        topic: args.to,
        messages: batch.messages.map(({ key, value }) => ({ key, value, partition: batch.partition }))
      })
      await transaction.sendOffsets({
        consumerGroupId: args.group,
        topics: [{
          topic: args.from,
          partitions: [{ partition: batch.partition, offset: (BigInt(batch.lastOffset()) + 1n).toString() }]
        }]
      })
      await transaction.commit()
    } catch (error) {
      await transaction.abort()
      throw error
    }
    console.log(`copied ${batch.messages.length}`)
  } finally {
    await producer.disconnect()
  }
}

while (!stopping) {
  const consumer = kafka.consumer({ groupId: args.group, readUncommitted: false, maxWaitTimeInMs: 200, sessionTimeout: 10000 })
  try {
    await consumer.connect()
    await consumer.subscribe({ topic: args.from, fromBeginning: true })
    const crashed = new Promise(resolve => consumer.on(consumer.events.CRASH, ({ payload }) => resolve(payload.error)))
    await consumer.run({ autoCommit: false, eachBatchAutoResolve: true, eachBatch: ({ batch }) => copy(batch) })
    const told = new Promise(resolve => process.on('SIGTERM', () => resolve('told to stop')))
    console.log('again', await Promise.race([crashed, told]))
  } catch (error) {
    console.log('again', error.message)
  } finally {
    await consumer.disconnect()
  }
}
