package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kafscale.example/e2e/record"
)

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type member struct {
	topic string
	lock  sync.Mutex
	read  map[int32]kgo.EpochOffset // not committed yet
}

func group(a record.Args) {
	m := &member{topic: a.Topic, read: map[int32]kgo.EpochOffset{}}
	membership := []kgo.Opt{
		kgo.ConsumeTopics(a.Topic), kgo.ConsumerGroup(a.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(a.Session()), kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
			record.Event("assigned", p[a.Topic], -1, "")
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, p map[string][]int32) {
			m.commit(ctx, client)
			m.forget(p[a.Topic])
			record.Event("revoked", p[a.Topic], -1, "")
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
			m.forget(p[a.Topic])
			record.Event("revoked", p[a.Topic], -1, "lost")
		}),
	}
	if a.Protocol == "consumer" {
		membership = append(membership, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		membership = append(membership, kgo.Balancers(balancers[a.Assignor]))
	}
	client, err := kgo.NewClient(options(a, membership...)...)
	record.Must(err)
	for ctx := record.UntilTerminated(); ctx.Err() == nil; {
		m.poll(ctx, client)
		client.AllowRebalance()
	}
	record.Must(client.LeaveGroupContext(context.Background()))
	client.CloseAllowingRebalance()
	record.Event("left", nil, -1, "")
}

func (m *member) poll(ctx context.Context, client *kgo.Client) {
	short, cancel := context.WithTimeout(ctx, record.CommitEvery)
	defer cancel()
	fetches := client.PollFetches(short)
	fetches.EachError(func(_ string, p int32, err error) {
		if short.Err() == nil {
			record.Event("note", []int32{p}, -1, err.Error())
		}
	})
	fetches.EachRecord(func(r *kgo.Record) {
		record.Event("record", []int32{r.Partition}, r.Offset, "")
		m.lock.Lock()
		m.read[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		m.lock.Unlock()
	})
	m.commit(context.Background(), client)
}

func (m *member) commit(ctx context.Context, client *kgo.Client) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.read) == 0 {
		return
	}
	client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.topic: m.read},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				record.Event("note", nil, -1, "commit: "+err.Error())
				return
			}
			for _, p := range response.Topics[0].Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					record.Event("note", []int32{p.Partition}, -1, "commit: "+err.Error())
					continue
				}
				record.Event("committed", []int32{p.Partition}, m.read[p.Partition].Offset, "")
				delete(m.read, p.Partition)
			}
		})
}

func (m *member) forget(partitions []int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, p := range partitions {
		delete(m.read, p)
	}
}
