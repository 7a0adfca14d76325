// Command load is the part of the benchmark that must not be the bottleneck: many producers with one record in
// flight each, a reader that only counts, records timed from send to receipt, and a producer that commits. It prints
// one JSON object.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	mode       = flag.String("mode", "", "oneinflight, catchup, endtoend or commits")
	bootstrap  = flag.String("bootstrap", "", "host:port")
	topic      = flag.String("topic", "", "topic")
	producers  = flag.Int("producers", 1, "producers of oneinflight and endtoend")
	consumers  = flag.Int("consumers", 0, "consumers of endtoend, each with its share of the partitions; 0: one of the topic")
	seconds    = flag.Int("seconds", 8, "measured time")
	warmup     = flag.Int("warmup", 2, "seconds before it")
	records    = flag.Int("records", 0, "records to read")
	size       = flag.Int("size", 1024, "bytes of a value")
	rate       = flag.Int("rate", 1000, "records per second of endtoend, of all producers together")
	random     = flag.Bool("random", false, "endtoend sends at random times, and to a random one of the partitions")
	fetchMax   = flag.Int("fetchmax", 50<<20, "fetch.max.bytes of catchup")
	partMax    = flag.Int("partitionmax", 4<<20, "max.partition.fetch.bytes of catchup")
	partitions = flag.Int("partitions", 1, "partitions of oneinflight, which take turns, of -random, and of commits")
	begin      = flag.Int("begin", 0, "seconds in which the partitions of -random begin, one after another")
	protocol   = flag.Int("protocol", 0, "of commits: 2 or 1, the protocols of transactions; 0 flushes, without them")
	every      = flag.Int("every", 100, "milliseconds of sending before each commit")
	tick       = flag.Int("tick", 0, "milliseconds from one record of each partition to the next, of commits; 0: no wait")
	buffered   = flag.Int("buffered", 10_000, "records of commits that are not acknowledged yet, at most")
	following  = flag.Bool("follow", false, "commits also times until a read_committed consumer has all partitions")
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newClient connects to the cluster as the flags say.
func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(*bootstrap))...)
}

func value() []byte {
	data := make([]byte, *size)
	for i := range data {
		data[i] = byte('A' + rand.Intn(26))
	}
	return data
}

func print(result map[string]any) {
	must(json.NewEncoder(os.Stdout).Encode(result))
}

func quantiles(all []float64) (p50, p99 float64) {
	if len(all) == 0 {
		return 0, 0
	}
	sort.Float64s(all)
	return all[len(all)/2], all[min(len(all)*99/100, len(all)-1)]
}

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute+time.Duration(*seconds)*time.Second)
	defer cancel()
	switch *mode {
	case "oneinflight":
		oneInFlight(ctx)
	case "catchup":
		catchUp(ctx)
	case "endtoend":
		endToEnd(ctx)
	case "commits":
		commits(ctx)
	default:
		must(fmt.Errorf("unknown mode %q", *mode))
	}
}

// oneInFlight measures acknowledged records per second and their latency. Each producer writes to one partition.
// "all" counts those of the warm-up too.
func oneInFlight(ctx context.Context) {
	var lock sync.Mutex
	var latencies []float64
	var acked int
	var group sync.WaitGroup
	begin := time.Now().Add(time.Duration(*warmup) * time.Second)
	end := begin.Add(time.Duration(*seconds) * time.Second)
	for number := range *producers {
		partition := int32(number % *partitions)
		client, err := newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
		must(err)
		group.Add(1)
		go func() {
			defer group.Done()
			defer client.Close()
			var mine []float64
			sent := 0
			data := value()
			for time.Now().Before(end) {
				start := time.Now()
				must(client.ProduceSync(ctx, &kgo.Record{Topic: *topic, Partition: partition, Value: data}).FirstErr())
				sent++
				if start.After(begin) {
					mine = append(mine, float64(time.Since(start).Microseconds())/1000)
				}
			}
			lock.Lock()
			latencies = append(latencies, mine...)
			acked += sent
			lock.Unlock()
		}()
	}
	group.Wait()
	p50, p99 := quantiles(latencies)
	print(map[string]any{"per_s": float64(len(latencies)) / float64(*seconds), "p50_ms": p50, "p99_ms": p99, "all": acked})
}

// catchUp reads a topic from its start and measures how fast.
func catchUp(ctx context.Context) {
	client, err := newClient(kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(int32(*fetchMax)),
		kgo.FetchMaxPartitionBytes(int32(*partMax)))
	must(err)
	defer client.Close()
	start := time.Now()
	var read, bytes int
	for read < *records {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { read++; bytes += len(r.Value) })
	}
	took := time.Since(start).Seconds()
	print(map[string]any{"per_s": float64(read) / took, "mb_per_s": float64(bytes) / took / 1e6})
}

// endToEnd sends at a steady rate and measures the time from send to receipt.
func endToEnd(ctx context.Context) {
	readers := readers()
	total := *rate * (*warmup + *seconds)
	sent := total - *rate**begin/2 // the rate rises while partitions begin
	start := time.Now()
	for number := range *producers {
		partitioner := kgo.RoundRobinPartitioner()
		if *random { // producers that take turns at the partitions would all be at the same one
			partitioner = kgo.ManualPartitioner()
		}
		producer, err := newClient(kgo.RecordPartitioner(partitioner),
			kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
		must(err)
		go send(producer, number, total, start)
	}
	deadline, cancel := context.WithTimeout(ctx, time.Duration(*warmup+*seconds+10)*time.Second)
	defer cancel()
	latencies, seen := received(deadline, cancel, readers, sent*9/10)
	p50, p99 := quantiles(latencies)
	print(map[string]any{"p50_ms": p50, "p99_ms": p99, "records": len(latencies), "all": seen})
}

// readers are consumers that begin at the end: one of the whole topic, or -consumers of every n-th partition each.
func readers() []*kgo.Client {
	wait := kgo.FetchMaxWait(5 * time.Second)
	if *consumers == 0 {
		one, err := newClient(kgo.ConsumeTopics(*topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), wait)
		must(err)
		return []*kgo.Client{one}
	}
	var all []*kgo.Client
	for number := range *consumers {
		share := map[int32]kgo.Offset{}
		for partition := number; partition < *partitions; partition += *consumers {
			share[int32(partition)] = kgo.NewOffset().AtEnd()
		}
		one, err := newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: share}), wait)
		must(err)
		all = append(all, one)
	}
	return all
}

// received reads until the readers together have seen that many records. It returns milliseconds from send to receipt
// of those after the warm-up, and how many records they saw in all.
func received(deadline context.Context, end func(), readers []*kgo.Client, wanted int) ([]float64, int) {
	var lock sync.Mutex
	var group sync.WaitGroup
	var latencies []float64
	seen := 0
	for _, reader := range readers {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				fetches := reader.PollFetches(deadline)
				if deadline.Err() != nil {
					return
				}
				now := time.Now().UnixNano()
				lock.Lock()
				fetches.EachRecord(func(r *kgo.Record) {
					seen++
					if int(binary.BigEndian.Uint64(r.Value[8:])) > *rate**warmup {
						latencies = append(latencies, float64(now-int64(binary.BigEndian.Uint64(r.Value)))/1e6)
					}
				})
				if seen >= wanted {
					end()
				}
				lock.Unlock()
			}
		}()
	}
	group.Wait()
	return latencies, seen
}

// send sends the records of one producer: each n-th of them, where n is the number of producers.
func send(producer *kgo.Client, number, total int, start time.Time) {
	interval := float64(time.Second) / float64(*rate)
	at := float64(number) * interval
	for n := number; n < total; n += *producers {
		time.Sleep(time.Until(start.Add(time.Duration(at))))
		gap := 1.0
		if *random {
			gap = rand.ExpFloat64()
		}
		at += gap * interval * float64(*producers)
		partition := rand.Intn(*partitions)
		if !hasBegun(partition, time.Since(start)) {
			continue
		}
		data := value()
		binary.BigEndian.PutUint64(data, uint64(time.Now().UnixNano()))
		binary.BigEndian.PutUint64(data[8:], uint64(n))
		record := kgo.Record{Topic: *topic, Partition: int32(partition), Value: data}
		producer.Produce(context.Background(), &record,
			func(_ *kgo.Record, err error) { must(err) }) // not the measurement's context, which ends with it
	}
}

func hasBegun(partition int, since time.Duration) bool {
	return since.Seconds()*float64(*partitions) >= float64(*begin*partition)
}
