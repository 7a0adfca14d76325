// The shape of a client program of the matrix; see e2e/clients/README.md.
import { parseArgs } from 'node:util'

const FIRST_TIMESTAMP = 1_700_000_000_000

export function args () {
  const string = { type: 'string' }
  const { values } = parseArgs({
    options: { mode: string, bootstrap: string, topic: string, name: string, codec: string, count: string, partitions: string,
      group: string, protocol: string, assignor: string, 'session-ms': string, security: string }
  })
  return {
    ...values, codec: values.codec ?? 'none', count: Number(values.count ?? 0), partitions: Number(values.partitions ?? 3),
    sessionMs: Number(values['session-ms'] ?? 6000)
  }
}

export function record (a, i) {
  const key = `${a.name}-${a.codec}-${i}`
  return {
    key,
    value: key + ':' + 'x'.repeat(i % 200),
    headers: { client: a.name, n: String(i) },
    timestamp: FIRST_TIMESTAMP + i
  }
}

export function * batches (a, size = 500) {
  for (let start = 0; start < a.count; start += size) {
    yield Array.from({ length: Math.min(size, a.count - start) }, (_, n) => record(a, start + n))
  }
}
