// Copies one topic to another exactly once with franz-go's GroupTransactSession; see e2e/clients/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = flag.String("bootstrap", "", "host:port, or several with commas")
	from      = flag.String("from", "", "topic")
	to        = flag.String("to", "", "topic")
	group     = flag.String("group", "", "id")
	protocol  = flag.String("protocol", "classic", "classic or consumer")
	id        = flag.String("id", "", "transactional id")
)

const wait = 200 * time.Millisecond

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		fmt.Println("again", run(ctx))
	}
}

// run goes on until an error. What it has left open is aborted when the next session begins.
func run(ctx context.Context) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...), kgo.TransactionalID(*id), kgo.TransactionTimeout(10 * time.Second),
		kgo.ConsumerGroup(*group), kgo.ConsumeTopics(*from), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation(),
	}
	if *protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	for ctx.Err() == nil {
		if err := step(ctx, session); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func step(ctx context.Context, session *kgo.GroupTransactSession) error {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := session.PollRecords(short, 50)
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	all := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(r *kgo.Record) {
		copied := &kgo.Record{Topic: *to, Partition: r.Partition, Key: r.Key, Value: r.Value}
		session.Produce(context.Background(), copied, all.Promise())
	})
	if err := all.Err(); err != nil {
		fmt.Println("not copied", err)
	}
	good := all.Err() == nil
	committed, err := session.End(context.Background(), kgo.TransactionEndTry(good))
	if committed {
		fmt.Println("copied", fetches.NumRecords())
	}
	return err
}
