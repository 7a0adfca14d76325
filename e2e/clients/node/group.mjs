// What a member of a group prints, and the partitions it may commit; see e2e/clients/README.md.

export function event (kind, partitions = [], more = {}) {
  const at = Number(process.hrtime.bigint()) / 1e9 // CLOCK_MONOTONIC, as in the other languages
  process.stdout.write(JSON.stringify({ event: kind, at, partitions, ...more }) + '\n')
}

// Clients for Node have no callbacks that take partitions away, only events, and deliver what they have in memory
// after them. Such a record has been seen, but a member commits nothing of a partition that it does not have, and
// never less than it has committed.
export class Holding {
  partitions = []
  read = new Map() // partition -> position, not committed yet
  done = new Map() // partition -> position, committed

  // All partitions that the member has from now on.
  has (partitions) {
    this.revoked(this.partitions.filter(each => !partitions.includes(each)))
    const added = partitions.filter(each => !this.partitions.includes(each))
    if (added.length) event('assigned', added)
    this.partitions = [...partitions]
  }

  revoked (gone = this.partitions) {
    if (gone.length) event('revoked', gone)
    for (const each of gone) {
      this.read.delete(each)
      this.done.delete(each)
    }
    this.partitions = this.partitions.filter(each => !gone.includes(each))
  }

  record (partition, offset) {
    const position = Number(offset) + 1
    event('record', [partition], { offset: Number(offset) })
    const known = this.read.get(partition) ?? this.done.get(partition) ?? 0
    if (this.partitions.includes(partition) && position > known) this.read.set(partition, position)
  }

  // One commit at a time; `commit` sends the positions.
  async commit (commit) {
    if (this.committing) return this.committing
    this.committing = this.#commit(commit)
    try { await this.committing } finally { this.committing = null }
  }

  async #commit (commit) {
    const positions = new Map(this.read)
    if (!positions.size) return
    try {
      await commit(positions)
    } catch (error) {
      event('note', [], { text: `commit: ${error.message}` })
      return
    }
    for (const [partition, offset] of positions) {
      event('committed', [partition], { offset })
      if (!this.partitions.includes(partition)) continue
      this.done.set(partition, offset)
      if (this.read.get(partition) === offset) this.read.delete(partition)
    }
  }
}

export function terminated () {
  return new Promise(resolve => process.once('SIGTERM', resolve))
}

export function show (partition, offset, timestamp, key, value, headers) {
  const base64 = data => Buffer.from(data ?? '').toString('base64')
  process.stdout.write(JSON.stringify({
    partition, offset: Number(offset), timestamp: Number(timestamp), key: base64(key), value: base64(value),
    headers: headers.map(([name, data]) => [String(name), base64(data)])
  }) + '\n')
}
