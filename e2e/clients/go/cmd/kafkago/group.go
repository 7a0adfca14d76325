package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"kafscale.example/e2e/record"
)

var balancers = map[string]kafka.GroupBalancer{
	"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

func group(a record.Args) {
	members, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: a.Group, Brokers: []string{a.Bootstrap}, Topics: []string{a.Topic}, StartOffset: kafka.FirstOffset,
		GroupBalancers: []kafka.GroupBalancer{balancers[a.Assignor]}, HeartbeatInterval: time.Second,
		SessionTimeout: a.Session(), RebalanceTimeout: a.Session(), JoinGroupBackoff: 500 * time.Millisecond,
	})
	record.Must(err)
	ctx := record.UntilTerminated()
	for {
		generation, err := members.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			record.Event("note", nil, -1, err.Error())
			continue
		}
		var partitions []int32
		for _, each := range generation.Assignments[a.Topic] {
			partitions = append(partitions, int32(each.ID))
		}
		record.Event("assigned", partitions, -1, "")
		for _, each := range generation.Assignments[a.Topic] {
			generation.Start(func(ctx context.Context) { read(ctx, a, generation, each) })
		}
	}
	record.Must(members.Close())
	record.Event("left", nil, -1, "")
}

// read reads one partition until its generation ends, and commits before it lets go.
func read(ctx context.Context, a record.Args, generation *kafka.Generation, from kafka.PartitionAssignment) {
	partition := []int32{int32(from.ID)}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{a.Bootstrap}, Topic: a.Topic, Partition: from.ID,
		MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 250 * time.Millisecond})
	defer reader.Close()
	record.Must(reader.SetOffset(from.Offset))
	done, next, last := int64(-1), int64(-1), time.Now()
	commit := func() {
		if next == done {
			return
		}
		err := generation.CommitOffsets(map[string]map[int]int64{a.Topic: {from.ID: next}})
		if err != nil {
			record.Event("note", partition, -1, "commit: "+err.Error())
			return
		}
		record.Event("committed", partition, next, "")
		done, last = next, time.Now()
	}
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, record.CommitEvery)
		m, err := reader.ReadMessage(short)
		cancel()
		if err == nil {
			record.Event("record", partition, m.Offset, "")
			next = m.Offset + 1
		} else if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			record.Event("note", partition, -1, err.Error())
		}
		if err != nil || time.Since(last) > record.CommitEvery {
			commit()
		}
	}
	commit()
	record.Event("revoked", partition, -1, "")
}
