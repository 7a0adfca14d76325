package record

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CommitEvery is how often a member commits what it has read.
const CommitEvery = 200 * time.Millisecond

var printing sync.Mutex

// Event prints what a member of a group just saw; an offset below zero is left out.
func Event(kind string, partitions []int32, offset int64, text string) {
	printing.Lock()
	defer printing.Unlock()
	line := map[string]any{"event": kind, "at": monotonic(), "partitions": partitions}
	if partitions == nil {
		line["partitions"] = []int32{}
	}
	if offset >= 0 {
		line["offset"] = offset
	}
	if text != "" {
		line["text"] = text
	}
	out, err := json.Marshal(line)
	Must(err)
	os.Stdout.Write(append(out, '\n'))
}

// monotonic is the clock that members in other languages read too; time.Now has its own beginning.
func monotonic() float64 {
	var now unix.Timespec
	Must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

// UntilTerminated ends at SIGTERM: time to leave the group cleanly.
func UntilTerminated() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx
}

// Session is the session timeout asked for.
func (a Args) Session() time.Duration { return time.Duration(a.SessionMs) * time.Millisecond }
