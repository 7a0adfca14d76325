package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	addPartitionsToTxn = 24 // its key; clients send it with TV1 only
	visibleWithin      = 30 * time.Second
)

// commits measures one producer that sends for -every milliseconds, then flushes or commits, and so on. It sends a
// record to each partition each -tick milliseconds, or always has -buffered records under way if -tick is 0. The
// figures are of whole rounds. A commit is timed apart from the flush before it.
func commits(ctx context.Context) {
	var joins joined
	client := committer(&joins)
	defer client.Close()
	reads := follow(ctx)
	var flushes, ends []float64
	var sent int
	var measured time.Time
	begin := time.Now().Add(time.Duration(*warmup) * time.Second)
	for number := int(time.Now().UnixNano()); ; number++ { // no number of an earlier producer, whose records a reader may see
		now := time.Now()
		if measured.IsZero() && now.After(begin) {
			measured, flushes, ends, sent = now, nil, nil, 0
			joins.count.Store(0)
		}
		if !measured.IsZero() && now.Sub(measured) >= time.Duration(*seconds)*time.Second {
			break
		}
		if *protocol > 0 {
			must(client.BeginTransaction())
		}
		sent += fill(client, number, now)
		start := time.Now()
		must(client.Flush(ctx))
		flushes = append(flushes, since(start))
		if *protocol > 0 {
			start = time.Now()
			if !measured.IsZero() {
				reads.ends(number, start)
			}
			must(client.EndTransaction(ctx, kgo.TryCommit))
			ends = append(ends, since(start))
		}
	}
	took := time.Since(measured).Seconds()
	result := map[string]any{"per_s": float64(sent) / took, "commits_per_s": float64(len(flushes)) / took, "joins": joins.count.Load()}
	put(result, "flush", flushes)
	put(result, "end", ends)
	put(result, "visible", reads.wait())
	print(result)
}

func since(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}

func put(result map[string]any, name string, times []float64) {
	if len(times) > 0 {
		p50, p99 := quantiles(times)
		result[name+"_p50_ms"], result[name+"_p99_ms"] = p50, p99
	}
}

// committer is the producer. With -protocol=1 it speaks as a client of Kafka 3.9 does.
func committer(joins *joined) *kgo.Client {
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(*buffered), kgo.WithHooks(joins)}
	if *protocol > 0 {
		options = append(options, kgo.TransactionalID(fmt.Sprintf("bench-%d", time.Now().UnixNano())))
	}
	if *protocol == 1 {
		options = append(options, kgo.MaxVersions(kversion.V3_9_0()))
	}
	client, err := newClient(options...)
	must(err)
	return client
}

// fill sends the records of one round and returns how many. With -tick the last ones are sent just before its end.
func fill(client *kgo.Client, number int, begin time.Time) (sent int) {
	data := value()
	binary.BigEndian.PutUint64(data, uint64(number))
	end, step := begin.Add(milliseconds(*every)), milliseconds(*tick)
	for next := begin.Add(step); !next.After(end); next = next.Add(step) {
		time.Sleep(time.Until(next))
		for partition := range *partitions {
			record := kgo.Record{Topic: *topic, Partition: int32(partition), Value: data}
			client.Produce(context.Background(), &record, func(_ *kgo.Record, err error) { must(err) })
			sent++
		}
		if step == 0 {
			next = time.Now()
		}
	}
	return sent
}

func milliseconds(n int) time.Duration {
	return time.Duration(n) * time.Millisecond
}

// joined counts AddPartitionsToTxn: it shows which protocol the client really speaks.
type joined struct{ count atomic.Int64 }

func (j *joined) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == addPartitionsToTxn {
		j.count.Add(1)
	}
}

// reader is a read_committed consumer. A transaction is visible when it has a record of it from each partition.
type reader struct {
	lock    sync.Mutex
	ended   map[int]time.Time // when the commit of those was called that are not visible yet
	seen    map[int]map[int32]bool
	visible []float64
}

// follow starts a reader at the end of the topic; nil without -follow.
func follow(ctx context.Context) *reader {
	if !*following {
		return nil
	}
	from := map[int32]kgo.Offset{}
	for partition := range *partitions {
		from[int32(partition)] = kgo.NewOffset().AtEnd()
	}
	client, err := newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	must(err)
	one := &reader{ended: map[int]time.Time{}, seen: map[int]map[int32]bool{}}
	go func() {
		for {
			fetches := client.PollFetches(ctx)
			must(fetches.Err())
			one.read(fetches)
		}
	}()
	return one
}

func (r *reader) read(fetches kgo.Fetches) {
	r.lock.Lock()
	defer r.lock.Unlock()
	fetches.EachRecord(func(record *kgo.Record) {
		number := int(binary.BigEndian.Uint64(record.Value))
		ended, due := r.ended[number]
		if !due {
			return
		}
		if r.seen[number] == nil {
			r.seen[number] = map[int32]bool{}
		}
		r.seen[number][record.Partition] = true
		if len(r.seen[number]) == *partitions {
			r.visible = append(r.visible, since(ended))
			delete(r.ended, number)
			delete(r.seen, number)
		}
	})
}

func (r *reader) ends(number int, at time.Time) {
	if r == nil {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.ended[number] = at
}

// wait returns the milliseconds from each commit's call until the transaction was visible.
func (r *reader) wait() []float64 {
	if r == nil {
		return nil
	}
	for deadline := time.Now().Add(visibleWithin); ; time.Sleep(10 * time.Millisecond) {
		r.lock.Lock()
		left, visible := len(r.ended), r.visible
		r.lock.Unlock()
		if left == 0 {
			return visible
		}
		if time.Now().After(deadline) {
			must(fmt.Errorf("%d of %d transactions were not visible within %s", left, left+len(visible), visibleWithin))
		}
	}
}
