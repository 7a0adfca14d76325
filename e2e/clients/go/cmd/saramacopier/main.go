// Copies one topic to another exactly once with sarama; see e2e/clients/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

var (
	bootstrap = flag.String("bootstrap", "", "host:port, or several with commas")
	from      = flag.String("from", "", "topic")
	to        = flag.String("to", "", "topic")
	group     = flag.String("group", "", "id")
	_         = flag.String("protocol", "classic", "sarama has only this one")
	id        = flag.String("id", "", "transactional id")
)

const (
	wait     = 200 * time.Millisecond
	together = 50
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes = true
	c.Producer.Transaction.Timeout = 10 * time.Second
	c.Net.MaxOpenRequests = 1
	return c
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		members, err := sarama.NewConsumerGroup(strings.Split(*bootstrap, ","), *group, config())
		if err == nil {
			err = members.Consume(ctx, []string{*from}, handler{})
			members.Close()
		}
		fmt.Println("again", err)
	}
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim runs for each partition, each with a producer of its own. Its end ends the session: what is read and
// not committed is read again by the next one, and what is open is aborted by the next producer of the id.
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	c := config()
	c.Producer.Transaction.ID = fmt.Sprintf("%s-%d", *id, claim.Partition())
	producer, err := sarama.NewSyncProducer(strings.Split(*bootstrap, ","), c)
	if err != nil {
		return err
	}
	defer producer.Close()
	for session.Context().Err() == nil {
		messages, open := gather(claim)
		if len(messages) > 0 {
			if err := copyOf(producer, messages); err != nil {
				fmt.Println("not copied", err)
				return err
			}
			fmt.Println("copied", len(messages))
		}
		if !open {
			return nil
		}
	}
	return nil
}

func gather(claim sarama.ConsumerGroupClaim) ([]*sarama.ConsumerMessage, bool) {
	var found []*sarama.ConsumerMessage
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for len(found) < together {
		select {
		case m, open := <-claim.Messages():
			if !open {
				return nil, false
			}
			found = append(found, m)
		case <-timer.C:
			return found, true
		}
	}
	return found, true
}

func copyOf(producer sarama.SyncProducer, messages []*sarama.ConsumerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	copies := make([]*sarama.ProducerMessage, len(messages))
	for i, m := range messages {
		copies[i] = &sarama.ProducerMessage{
			Topic: *to, Partition: m.Partition, Key: sarama.ByteEncoder(m.Key), Value: sarama.ByteEncoder(m.Value),
		}
	}
	if err := producer.SendMessages(copies); err != nil {
		return err
	}
	if err := producer.AddMessageToTxn(messages[len(messages)-1], *group, nil); err != nil {
		return err
	}
	return producer.CommitTxn()
}
