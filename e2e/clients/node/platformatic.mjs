// @platformatic/kafka as a client of the matrix. It reads in groups only.
import { Consumer, Producer, stringSerializers } from '@platformatic/kafka'
import { Holding, event, show, terminated } from './group.mjs'
import { args, batches } from './record.mjs'

const a = args()
const common = { clientId: a.name || 'platformatic', bootstrapBrokers: [a.bootstrap], retries: 10 }

async function produce () {
  const producer = new Producer({ ...common, serializers: stringSerializers, autocreateTopics: true, compression: a.codec })
  for (const batch of batches(a)) {
    const messages = batch.map(r => ({ ...r, topic: a.topic, timestamp: BigInt(r.timestamp) }))
    await producer.send({ acks: -1, messages })
  }
  await producer.close()
}

async function consume () {
  const consumer = new Consumer({ ...common, groupId: a.group ?? `platformatic-reads-${a.topic}` })
  const stream = await consumer.consume({ topics: [a.topic], mode: 'earliest', autocommit: false, maxWaitTime: 250 })
  let left = a.count
  for await (const m of stream) {
    show(m.partition, m.offset, m.timestamp, m.key, m.value, [...m.headers])
    if (--left === 0) break
  }
  await consumer.close(true)
}

// With the new protocol there is no event for an assignment, only this field.
function watch (consumer, seen) {
  let value = consumer.assignments
  Object.defineProperty(consumer, 'assignments', {
    get: () => value,
    set: next => { value = next; seen(next) }
  })
}

async function group () {
  const classic = { sessionTimeout: a.sessionMs, rebalanceTimeout: 10000, heartbeatInterval: 1000 }
  const consumer = new Consumer({
    ...common, groupId: a.group, ...(a.protocol === 'consumer' ? { groupProtocol: 'consumer' } : classic)
  })
  const holding = new Holding()
  const mine = assignments => (assignments ?? []).filter(each => each.topic === a.topic).flatMap(each => each.partitions)
  if (a.protocol === 'consumer') {
    watch(consumer, assignments => holding.has(mine(assignments)))
  } else {
    consumer.on('consumer:group:join', ({ assignments }) => {
      holding.revoked()
      holding.has(mine(assignments))
    })
    consumer.on('consumer:group:rebalance', () => holding.revoked())
  }
  consumer.on('error', error => event('note', [], { text: error.message }))
  const stream = await consumer.consume({
    topics: [a.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 250
  })
  const commit = () => holding.commit(positions => consumer.commit({
    offsets: [...positions].map(([partition, offset]) => ({ topic: a.topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
  }))
  stream.on('error', error => event('note', [], { text: `stream: ${error.message}` }))
  stream.on('data', m => holding.record(m.partition, m.offset))
  const committing = setInterval(commit, 200)
  await terminated()
  clearInterval(committing)
  await commit()
  holding.revoked()
  await stream.close() // with the new protocol the consumer's close leaves it open
  await consumer.close(true)
  event('left')
}

await { produce, consume, group }[a.mode]()
