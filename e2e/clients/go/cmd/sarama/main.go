// sarama as a client of the matrix.
package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"kafscale.example/e2e/record"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config(a record.Args) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = a.Name
	c.Producer.Compression = codecs[a.Codec]
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Return.Successes = true
	if s := a.Security(); s != nil {
		secure(c, s)
	}
	return c
}

func main() {
	a := record.Parse()
	if a.Mode == "group" {
		group(a)
		return
	}
	if a.Mode == "produce" {
		produce(a)
	} else {
		consume(a)
	}
}

func produce(a record.Args) {
	producer, err := sarama.NewAsyncProducer([]string{a.Bootstrap}, config(a))
	record.Must(err)
	go func() {
		for i := 0; i < a.Count; i++ {
			m := &sarama.ProducerMessage{Topic: a.Topic, Key: sarama.StringEncoder(a.Key(i)),
				Value: sarama.StringEncoder(a.Value(i)), Timestamp: a.Time(i)}
			for _, h := range a.Headers(i) {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: []byte(h.Value)})
			}
			producer.Input() <- m
		}
	}()
	for done := 0; done < a.Count; done++ {
		select {
		case <-producer.Successes():
		case err := <-producer.Errors():
			record.Must(err)
		case <-time.After(time.Minute):
			record.Must(fmt.Errorf("no acknowledgement for a minute after %d records", done))
		}
	}
	record.Must(producer.Close())
}

func consume(a record.Args) {
	consumer, err := sarama.NewConsumer([]string{a.Bootstrap}, config(a))
	record.Must(err)
	messages := make(chan *sarama.ConsumerMessage, 1024)
	partitions, err := consumer.Partitions(a.Topic)
	record.Must(err)
	for _, p := range partitions {
		part, err := consumer.ConsumePartition(a.Topic, p, sarama.OffsetOldest)
		record.Must(err)
		go func() {
			for m := range part.Messages() {
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
				headers = append(headers, [2][]byte{h.Key, h.Value})
			}
			printer.Print(m.Partition, m.Offset, m.Timestamp, m.Key, m.Value, headers)
		case <-time.After(time.Minute):
			record.Must(fmt.Errorf("no record for a minute, %d missing", left))
		}
	}
	printer.Flush()
}
