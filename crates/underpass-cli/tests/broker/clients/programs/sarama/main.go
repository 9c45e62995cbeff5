// The scenarios by sarama. See ../README.md.
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

	"github.com/IBM/sarama"
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
	config := configuration()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 200
	config.Producer.Compression = codec(args)
	switch args.options["acks"] {
	case "0":
		config.Producer.RequiredAcks = sarama.NoResponse
	case "1":
		config.Producer.RequiredAcks = sarama.WaitForLocal
	case "all":
		config.Producer.RequiredAcks = sarama.WaitForAll
	default:
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{args.broker}, config)
	check(err)
	stop := stopped()
	first, acknowledged := number(args.options["first"]), 0
	for {
		check(producer.SendMessages(records(args, first)))
		first += args.count
		acknowledged += args.count
		if args.scenario == "produce" || stop.Err() != nil {
			break
		}
		say(map[string]any{"acknowledged": acknowledged})
		time.Sleep(pace)
	}
	check(producer.Close())
	say(map[string]any{"acknowledged": acknowledged, "done": true})
}

func codec(args arguments) sarama.CompressionCodec {
	codecs := map[string]sarama.CompressionCodec{
		"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	return codecs[args.options["codec"]]
}

func records(args arguments, first int) []*sarama.ProducerMessage {
	start := time.UnixMilli(int64(number(args.options["time"])))
	var records []*sarama.ProducerMessage
	for i := first; i < first+args.count; i++ {
		records = append(records, &sarama.ProducerMessage{
			Topic:     args.topic,
			Partition: int32(i % partitions),
			Key:       sarama.StringEncoder(fmt.Sprintf("k%d", i)),
			Value:     sarama.ByteEncoder(payload(args.seed, i)),
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
}

func consume(args arguments) {
	client, err := sarama.NewClient([]string{args.broker}, configuration())
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	numbers, err := client.Partitions(args.topic)
	check(err)
	parts := map[int32]*part{}
	for _, partition := range numbers {
		part := position(client, args, partition)
		read(consumer, args.topic, partition, part)
		parts[partition] = part
	}
	check(consumer.Close())
	check(client.Close())
	say(map[string]any{"partitions": parts})
}

// The offsets where reading begins and ends.
func position(client sarama.Client, args arguments, partition int32) *part {
	offset := func(time int64) int64 {
		offset, err := client.GetOffset(args.topic, partition, time)
		check(err)
		return offset
	}
	end := offset(sarama.OffsetNewest)
	start := end
	kind, value, _ := strings.Cut(args.options["from"], ":")
	switch kind {
	case "", "beginning":
		start = offset(sarama.OffsetOldest)
	case "offset":
		start = int64(number(value))
	case "time":
		// -1 where no record is that young.
		if found := offset(int64(number(value))); found >= 0 {
			start = found
		}
	}
	return &part{Start: start, next: start, end: end}
}

func read(consumer sarama.Consumer, topic string, partition int32, part *part) {
	var digest hash.Hash = sha256.New()
	if part.next < part.end {
		records, err := consumer.ConsumePartition(topic, partition, part.Start)
		check(err)
		for part.next < part.end {
			select {
			case record := <-records.Messages():
				part.next = record.Offset + 1
				part.Count++
				fmt.Fprintf(digest, "%s\n%s\n", record.Key, record.Value)
			case err := <-records.Errors():
				check(err)
			}
		}
		check(records.Close())
	}
	part.Sha256 = hex.EncodeToString(digest.Sum(nil))
}

type member struct{ topic string }

func (member member) Setup(session sarama.ConsumerGroupSession) error {
	assigned := append([]int32{}, session.Claims()[member.topic]...)
	slices.Sort(assigned)
	say(map[string]any{"assigned": assigned})
	return nil
}

func (member) Cleanup(sarama.ConsumerGroupSession) error {
	say(map[string]any{"assigned": []int32{}})
	return nil
}

func (member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for record := range claim.Messages() {
		session.MarkMessage(record, "")
		session.Commit()
		say(map[string]any{
			"partition": record.Partition, "first": record.Offset, "next": record.Offset + 1,
		})
	}
	return nil
}

func group(args arguments) {
	stop := stopped()
	config := configuration()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(),
	}
	group, err := sarama.NewConsumerGroup([]string{args.broker}, args.options["group"], config)
	check(err)
	for stop.Err() == nil {
		// An error is the end of one generation; the next call joins again.
		if err := group.Consume(stop, []string{args.topic}, member{args.topic}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	check(group.Close())
	say(map[string]any{"left": true})
}

func admin(args arguments) {
	admin, err := sarama.NewClusterAdmin([]string{args.broker}, configuration())
	check(err)
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	check(admin.CreateTopic(args.topic, detail, false))
	partitionsNow := func() int32 {
		topics, err := admin.DescribeTopics([]string{args.topic})
		check(err)
		return int32(len(topics[0].Partitions))
	}
	created := waitedFor(func() bool { return partitionsNow() > 0 })
	count := partitionsNow()
	check(admin.DeleteTopic(args.topic))
	gone := waitedFor(func() bool { return partitionsNow() == 0 })
	check(admin.Close())
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

func configuration() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 200
	return config
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
