package main

import (
	"time"

	"github.com/IBM/sarama"

	"kafscale.example/e2e/record"
)

var strategies = map[string]sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky": sarama.NewBalanceStrategySticky(),
}

func group(a record.Args) {
	c := config(a)
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout = a.Session()
	c.Consumer.Group.Heartbeat.Interval = time.Second
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[a.Assignor]}
	members, err := sarama.NewConsumerGroup([]string{a.Bootstrap}, a.Group, c)
	record.Must(err)
	admin, err := sarama.NewClusterAdmin([]string{a.Bootstrap}, config(a))
	record.Must(err)
	ctx := record.UntilTerminated()
	for ctx.Err() == nil {
		if err := members.Consume(ctx, []string{a.Topic}, &handler{a, admin}); err != nil {
			record.Event("note", nil, -1, err.Error())
		}
	}
	record.Must(members.Close())
	record.Event("left", nil, -1, "")
}

type handler struct {
	record.Args
	admin sarama.ClusterAdmin
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	record.Event("assigned", session.Claims()[h.Topic], -1, "")
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	record.Event("revoked", session.Claims()[h.Topic], -1, "")
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ticker := time.NewTicker(record.CommitEvery)
	defer ticker.Stop()
	read := false
	for {
		select {
		case m, open := <-claim.Messages():
			if open {
				record.Event("record", []int32{m.Partition}, m.Offset, "")
				session.MarkMessage(m, "")
				read = true
				continue
			}
			h.commit(session, claim, read)
			return nil
		case <-ticker.C:
			h.commit(session, claim, read)
			read = false
		}
	}
}

// commit asks what is committed now: sarama does not say whether a commit succeeded.
func (h *handler) commit(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, read bool) {
	if !read {
		return
	}
	session.Commit()
	p := claim.Partition()
	found, err := h.admin.ListConsumerGroupOffsets(h.Group, map[string][]int32{h.Topic: {p}})
	if err != nil {
		record.Event("note", []int32{p}, -1, "offsets: "+err.Error())
		return
	}
	if block := found.GetBlock(h.Topic, p); block != nil && block.Offset >= 0 {
		record.Event("committed", []int32{p}, block.Offset, "")
	}
}
