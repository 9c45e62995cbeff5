// The scenarios by franz-go. See ../README.md.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4

// Between batches of the scenario restart, so that readers keep up.
const pace = 50 * time.Millisecond

type arguments struct {
	broker, scenario, topic, seed string
	count                         int
	options                       map[string]string
}

func main() {
	words := os.Args[1:]
	count, err := strconv.Atoi(words[3])
	check(err)
	args := arguments{words[0], words[1], words[2], words[4], count, map[string]string{}}
	for _, word := range words[5:] {
		name, value, _ := strings.Cut(word, "=")
		args.options[name] = value
	}
	scenarios := map[string]func(arguments){
		"produce": produce, "restart": produce, "consume": consume, "group": group, "admin": admin,
	}
	scenarios[args.scenario](args)
}

func produce(args arguments) {
	client := connect(args, append(durability(args), codec(args),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	stop := stopped()
	first, acknowledged := number(args.options["first"]), 0
	for {
		check(client.ProduceSync(context.Background(), records(args, first)...).FirstErr())
		first += args.count
		acknowledged += args.count
		if args.scenario == "produce" || stop.Err() != nil {
			break
		}
		say(map[string]any{"acknowledged": acknowledged})
		time.Sleep(pace)
	}
	client.Close()
	say(map[string]any{"acknowledged": acknowledged, "done": true})
}

func durability(args arguments) []kgo.Opt {
	switch args.options["acks"] {
	case "0":
		return []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}
	case "1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}
	case "all":
		return []kgo.Opt{kgo.DisableIdempotentWrite()}
	}
	return nil
}

func codec(args arguments) kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	if codec, known := codecs[args.options["codec"]]; known {
		return kgo.ProducerBatchCompression(codec)
	}
	return kgo.ProducerBatchCompression(kgo.NoCompression())
}

func records(args arguments, first int) []*kgo.Record {
	start := time.UnixMilli(int64(number(args.options["time"])))
	var records []*kgo.Record
	for i := first; i < first+args.count; i++ {
		records = append(records, &kgo.Record{
			Topic:     args.topic,
			Partition: int32(i % partitions),
			Key:       []byte(fmt.Sprintf("k%d", i)),
			Value:     payload(args.seed, i),
			Timestamp: start.Add(time.Duration(i) * time.Millisecond),
		})
	}
	return records
}

func payload(seed string, index int) []byte {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s:%d", seed, index)))
	digest := hex.EncodeToString(sum[:])
	length := 1 + (int(sum[0])<<8|int(sum[1]))%1000
	return []byte(strings.Repeat(digest, length/len(digest)+1)[:length])
}

type part struct {
	Start     int64  `json:"start"`
	Count     int64  `json:"count"`
	Sha256    string `json:"sha256"`
	next, end int64
	hash      hash.Hash
}

func consume(args arguments) {
	parts := positions(args)
	from := map[int32]kgo.Offset{}
	for partition, part := range parts {
		from[partition] = kgo.NewOffset().At(part.Start)
	}
	client := connect(args, kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{args.topic: from}))
	for !complete(parts) {
		fetches := client.PollFetches(context.Background())
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { add(parts[record.Partition], record) })
	}
	for _, part := range parts {
		part.Sha256 = hex.EncodeToString(part.hash.Sum(nil))
	}
	client.Close()
	say(map[string]any{"partitions": parts})
}

// The offsets where reading begins and ends, by partition.
func positions(args arguments) map[int32]*part {
	client := connect(args)
	defer client.Close()
	admin, background := kadm.NewClient(client), context.Background()
	ends, err := admin.ListEndOffsets(background, args.topic)
	check(err)
	kind, value, _ := strings.Cut(args.options["from"], ":")
	starts := ends
	switch kind {
	case "", "beginning":
		starts, err = admin.ListStartOffsets(background, args.topic)
	case "time":
		starts, err = admin.ListOffsetsAfterMilli(background, int64(number(value)), args.topic)
	}
	check(err)
	parts := map[int32]*part{}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(args.topic, end.Partition)
		if kind == "offset" {
			start.Offset = int64(number(value))
		}
		parts[end.Partition] = &part{
			Start: start.Offset, next: start.Offset, end: end.Offset, hash: sha256.New(),
		}
	})
	return parts
}

func complete(parts map[int32]*part) bool {
	for _, part := range parts {
		if part.next < part.end {
			return false
		}
	}
	return true
}

func add(part *part, record *kgo.Record) {
	if record.Offset >= part.end {
		return
	}
	part.next = record.Offset + 1
	part.Count++
	fmt.Fprintf(part.hash, "%s\n%s\n", record.Key, record.Value)
}

func group(args arguments) {
	stop := stopped()
	client := connect(args,
		kgo.ConsumerGroup(args.options["group"]),
		kgo.ConsumeTopics(args.topic),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, to map[string][]int32) {
			assigned := append([]int32{}, to[args.topic]...)
			slices.Sort(assigned)
			say(map[string]any{"assigned": assigned})
		}),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {
			say(map[string]any{"assigned": []int32{}})
		}),
	)
	for stop.Err() == nil {
		fetches := client.PollFetches(stop)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
			fmt.Fprintln(os.Stderr, "a commit:", err)
			continue
		}
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			if read := fetched.Records; len(read) > 0 {
				say(map[string]any{
					"partition": fetched.Partition,
					"first":     read[0].Offset,
					"next":      read[len(read)-1].Offset + 1,
				})
			}
		})
	}
	client.Close()
	say(map[string]any{"left": true})
}

func admin(args arguments) {
	client := connect(args)
	defer client.Close()
	admin, background := kadm.NewClient(client), context.Background()
	_, err := admin.CreateTopic(background, partitions, 1, nil, args.topic)
	check(err)
	topics := func() kadm.TopicDetails {
		topics, err := admin.ListTopics(background)
		check(err)
		return topics
	}
	created := waitedFor(func() bool { return topics().Has(args.topic) })
	count := len(topics()[args.topic].Partitions)
	_, err = admin.DeleteTopic(background, args.topic)
	check(err)
	gone := waitedFor(func() bool { return !topics().Has(args.topic) })
	say(map[string]any{"partitions": count, "gone": created && gone})
}

// Whether something becomes true; metadata may lag behind the answer to an administrator.
func waitedFor(holds func() bool) bool {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if holds() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

func connect(args arguments, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(args.broker),
		kgo.AllowAutoTopicCreation())...)
	check(err)
	return client
}

// A context that ends with SIGTERM.
func stopped() context.Context {
	stop, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return stop
}

func number(text string) int {
	if text == "" {
		return 0
	}
	number, err := strconv.Atoi(text)
	check(err)
	return number
}

var output sync.Mutex

func say(event any) {
	line, err := json.Marshal(event)
	check(err)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
