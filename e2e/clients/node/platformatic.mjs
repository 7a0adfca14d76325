// @platformatic/kafka as a producer of the matrix.
import { Producer, stringSerializers } from '@platformatic/kafka'
import { args, batches } from './record.mjs'

const a = args()
const producer = new Producer({
  clientId: a.name, bootstrapBrokers: [a.bootstrap], serializers: stringSerializers,
  autocreateTopics: true, compression: a.codec, retries: 10
})
for (const batch of batches(a)) {
  const messages = batch.map(r => ({ ...r, topic: a.topic, timestamp: BigInt(r.timestamp) }))
  await producer.send({ acks: -1, messages })
}
await producer.close()
