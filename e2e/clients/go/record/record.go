// Package record is the shape of a client program of the matrix: the same arguments, the same
// records and the same output in every language (see e2e/clients/README.md).
package record

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// FirstTimestamp is the create time of record 0, in milliseconds.
const FirstTimestamp = 1_700_000_000_000

// Args are the arguments of every client program.
type Args struct {
	Mode, Bootstrap, Topic, Name, Codec string
	Count, Partitions                   int
	Group, Protocol, Assignor           string
	SessionMs                           int
	SecurityFile                        string
	Committed                           bool
}

// Parse reads the arguments.
func Parse() Args {
	var a Args
	flag.StringVar(&a.Mode, "mode", "", "produce, consume or group")
	flag.StringVar(&a.Bootstrap, "bootstrap", "", "host:port")
	flag.StringVar(&a.Topic, "topic", "", "topic")
	flag.StringVar(&a.Name, "name", "", "goes into keys and values")
	flag.StringVar(&a.Codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	flag.IntVar(&a.Count, "count", 0, "records")
	flag.IntVar(&a.Partitions, "partitions", 3, "partitions to read")
	flag.StringVar(&a.Group, "group", "", "group to join")
	flag.StringVar(&a.Protocol, "protocol", "classic", "classic or consumer")
	flag.StringVar(&a.Assignor, "assignor", "range", "of the classic protocol")
	flag.IntVar(&a.SessionMs, "session-ms", 6000, "session timeout")
	flag.StringVar(&a.SecurityFile, "security", "", "file that says how the client gets in")
	isolation := flag.String("isolation", "read_uncommitted", "read_committed or read_uncommitted")
	flag.Parse()
	a.Committed = *isolation == "read_committed"
	return a
}

// Header is a record header.
type Header struct{ Key, Value string }

// Key of record i.
func (a Args) Key(i int) string { return fmt.Sprintf("%s-%s-%d", a.Name, a.Codec, i) }

// Value of record i.
func (a Args) Value(i int) string { return a.Key(i) + ":" + strings.Repeat("x", i%200) }

// Headers of record i.
func (a Args) Headers(i int) []Header {
	return []Header{{"client", a.Name}, {"n", fmt.Sprint(i)}}
}

// Time of record i.
func (a Args) Time(i int) time.Time { return time.UnixMilli(FirstTimestamp + int64(i)) }

// Printer writes consumed records, one JSON object a line.
type Printer struct{ out *bufio.Writer }

// NewPrinter prints to standard output.
func NewPrinter() *Printer { return &Printer{bufio.NewWriterSize(os.Stdout, 1<<20)} }

// Print one record.
func (p *Printer) Print(partition int32, offset int64, at time.Time, key, value []byte, headers [][2][]byte) {
	encoded := make([][2]string, 0, len(headers))
	for _, h := range headers {
		encoded = append(encoded, [2]string{string(h[0]), base64.StdEncoding.EncodeToString(h[1])})
	}
	line, err := json.Marshal(map[string]any{
		"partition": partition, "offset": offset, "timestamp": at.UnixMilli(),
		"key":   base64.StdEncoding.EncodeToString(key),
		"value": base64.StdEncoding.EncodeToString(value), "headers": encoded,
	})
	Must(err)
	p.out.Write(line)
	p.out.WriteByte('\n')
}

// Flush at the end.
func (p *Printer) Flush() { Must(p.out.Flush()) }

// Must ends the program with the error, if there is one.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
