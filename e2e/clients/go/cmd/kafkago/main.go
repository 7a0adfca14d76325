// segmentio/kafka-go as a client of the matrix.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"kafscale.example/e2e/record"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

// A topic is there within a second; a minute is a busy machine's.
const createTries = 240

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
	writer := &kafka.Writer{
		Addr: kafka.TCP(a.Bootstrap), Topic: a.Topic, Balancer: &kafka.Hash{}, Compression: codecs[a.Codec],
		RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond, MaxAttempts: 20,
	}
	var batch []kafka.Message
	for i := 0; i < a.Count; i++ {
		m := kafka.Message{Key: []byte(a.Key(i)), Value: []byte(a.Value(i)), Time: a.Time(i)}
		for _, h := range a.Headers(i) {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: []byte(h.Value)})
		}
		batch = append(batch, m)
		if len(batch) == 1000 || i == a.Count-1 {
			record.Must(write(ctx, writer, batch))
			batch = nil
		}
	}
	record.Must(writer.Close())
}

// The Metadata request that creates a topic is answered "unknown topic", by Apache Kafka as well. kafka-go gives that to
// its caller before it has sent a record, and its documentation says to write again.
func write(ctx context.Context, writer *kafka.Writer, batch []kafka.Message) error {
	for try := 1; ; try++ {
		err := writer.WriteMessages(ctx, batch...)
		if try == createTries || !errors.Is(err, kafka.UnknownTopicOrPartition) {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
}

func consume(ctx context.Context, a record.Args) {
	messages := make(chan kafka.Message, 1024)
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	for p := 0; p < a.Partitions; p++ {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{a.Bootstrap}, Topic: a.Topic, Partition: p,
			MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 250 * time.Millisecond})
		record.Must(reader.SetOffset(kafka.FirstOffset))
		readers.Add(1)
		go func() {
			defer readers.Done()
			defer reader.Close()
			for {
				m, err := reader.ReadMessage(ctx)
				if ctx.Err() != nil {
					return
				}
				record.Must(err)
				messages <- m
			}
		}()
	}
	printer := record.NewPrinter()
	for left := a.Count; left > 0; left-- {
		select {
		case m := <-messages:
			headers := make([][2][]byte, 0, len(m.Headers))
			for _, h := range m.Headers {
				headers = append(headers, [2][]byte{[]byte(h.Key), h.Value})
			}
			printer.Print(int32(m.Partition), m.Offset, m.Time, m.Key, m.Value, headers)
		case <-ctx.Done():
			record.Must(ctx.Err())
		}
	}
	printer.Flush()
	cancel()
	readers.Wait()
}
