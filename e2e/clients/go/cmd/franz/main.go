// franz-go as a client of the matrix.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kafscale.example/e2e/record"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	a := record.Parse()
	if a.Mode == "group" {
		group(a)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if a.Mode == "produce" {
		produce(ctx, a)
	} else {
		consume(ctx, a)
	}
}

func produce(ctx context.Context, a record.Args) {
	client, err := kgo.NewClient(options(a, kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[a.Codec]), kgo.DefaultProduceTopic(a.Topic))...)
	record.Must(err)
	defer client.Close()
	var once sync.Once
	var first error
	for i := 0; i < a.Count; i++ {
		r := &kgo.Record{Key: []byte(a.Key(i)), Value: []byte(a.Value(i)), Timestamp: a.Time(i)}
		for _, h := range a.Headers(i) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: []byte(h.Value)})
		}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	record.Must(client.Flush(ctx))
	record.Must(first)
}

func consume(ctx context.Context, a record.Args) {
	level := kgo.ReadUncommitted()
	if a.Committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(options(a, kgo.ConsumeTopics(a.Topic), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	record.Must(err)
	defer client.Close()
	printer := record.NewPrinter()
	for left := a.Count; left > 0; {
		fetches := client.PollFetches(ctx)
		record.Must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			headers := make([][2][]byte, 0, len(r.Headers))
			for _, h := range r.Headers {
				headers = append(headers, [2][]byte{[]byte(h.Key), h.Value})
			}
			printer.Print(r.Partition, r.Offset, r.Timestamp, r.Key, r.Value, headers)
			left--
		})
	}
	printer.Flush()
}
