package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
)

// probeEvery is the time between two probes of [Nodes.Watch].
const probeEvery = time.Second

// NodeStatus is the state of a node: a server, or a master of a cluster.
type NodeStatus struct {
	Node string // its address; "sentinel" of a server behind Sentinels
	Err  error  // why it cannot be used; it matches [ErrUnavailable] or [ErrStamp]
}

// Status is the result of a probe.
type Status struct {
	Nodes []NodeStatus // in the order of their addresses
	Away  float64      // the share of the nodes that cannot be used, 0 to 1

	err       error // the nodes cannot be found
	began, at time.Time
}

// Err returns the error that matters most: [ErrStamp], or the first of a node; nil if
// all data can be used.
func (s Status) Err() error {
	err := s.err
	for _, n := range s.Nodes {
		if errors.Is(n.Err, ErrStamp) {
			return n.Err
		}
		err = cmp.Or(err, n.Err)
	}
	return err
}

// FindErr returns why the nodes could not be found; nil: they were.
func (s Status) FindErr() error { return s.err }

// isFresh reports whether the result of a probe still counts.
func (s *Status) isFresh() bool { return s != nil && time.Since(s.at) < seenFor() }

// Status returns the result of the last probe, and probes if it does not count any more.
func (ns *Nodes) Status(ctx context.Context) Status {
	if s := ns.last.Load(); s.isFresh() {
		return *s
	}
	ns.asking.Lock()
	defer ns.asking.Unlock()
	if s := ns.last.Load(); s.isFresh() {
		return *s
	}
	return ns.Probe(ctx)
}

// Probe finds out whether all data can be read and written now. It writes a little to each node, and
// deletes data that may be old before it returns.
func (ns *Nodes) Probe(ctx context.Context) Status {
	s, old := ns.probe(ctx)
	for _, f := range old {
		ns.purge(ctx, f)
	}
	if len(old) > 0 {
		s, _ = ns.probe(ctx)
	}
	return s
}

// Watch probes every second until ctx ends, which is no error. So [Nodes.Usable] is up to date, the metrics show the nodes, and data that
// may be old are deleted. It calls report with the beginning of each probe and its result. Call it once.
func (ns *Nodes) Watch(ctx context.Context, report func(began time.Time, s Status)) error {
	var purges sync.WaitGroup
	defer purges.Wait()
	for ctx.Err() == nil {
		status, old := ns.probe(ctx)
		for _, f := range old {
			purges.Go(func() { ns.purge(ctx, f) })
		}
		if ctx.Err() == nil {
			report(status.began, status)
		}
		_ = retry.Sleep(ctx, probeEvery-time.Since(status.began))
	}
	return nil
}

// LostAt returns when this process last found that data were gone or had been deleted as they might be
// old, in unix milliseconds; 0: never.
func (ns *Nodes) LostAt() int64 { return ns.lostAt.Load() }

// probe looks at all nodes, and returns also the nodes whose data have to be deleted.
func (ns *Nodes) probe(ctx context.Context) (s Status, old []found) {
	ns.probing.Lock()
	defer ns.probing.Unlock()
	s.began = time.Now()
	nodes, err := ns.masters(ctx)
	s.err = Translate(ctx, "find the nodes", err)
	looks, runs := make([]found, len(nodes)), make(map[string]bool)
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { looks[i] = n.inspect(ctx) })
	}
	group.Wait()
	for _, f := range looks {
		runs[f.run] = f.err == nil
	}
	away := 0
	for _, f := range looks {
		err := ns.believes(ctx, f, runs)
		if errors.Is(err, ErrUnknown) && len(f.records) > 0 {
			old = append(old, f)
		}
		status := f.node.probed(cmp.Or(err, f.refused))
		if s.Nodes = append(s.Nodes, status); status.Err != nil {
			away++
		}
	}
	if s.Away = 1; len(nodes) > 0 {
		s.Away = float64(away) / float64(len(nodes))
	}
	for _, n := range ns.nodes.Range {
		if n := n.(*Node); err == nil && !slices.Contains(nodes, n) { //nolint:forcetypeassert // nodes has no other values
			n.sees("")
		}
	}
	s.at = time.Now()
	if ctx.Err() == nil || ns.last.Load() == nil {
		ns.last.Store(&s)
		show(s)
	}
	return s, old
}

// believes takes note of the server that a probe found at a node, and returns why its data are not believed.
func (ns *Nodes) believes(ctx context.Context, f found, runs map[string]bool) error {
	n := f.node
	if f.err == nil || errors.Is(f.err, errReplica) {
		n.sees(f.run)
	}
	own, moved, err := n.judge(f, runs)
	if err != nil {
		return Translate(ctx, "probe", err)
	}
	if moved {
		_ = n.with(ProbeTimeout, func(c *redis.Client) error { return ns.settle(ctx, c, f, own) }) // or the next probe does
	}
	if n.record != own && ns.last.Load() != nil { // a process deleted the data of before
		ns.lostAt.Store(max(time.Now().UnixMilli(), ns.lostAt.Load()+1))
	}
	n.record = own
	return nil
}

// found is the result of a look at a server.
type found struct {
	node    *Node
	run     string            // of the server: each start has another; "" of a replica
	records map[string]string // by tag; "" where none is stored
	err     error             // why its data are not to be believed, whatever was found
	refused error             // why it cannot be written
}

// A record is stored beside the data: "<stamp> run=<run of the server that they were written to> <unix nanoseconds>".
const runField = " run="

// recordOf returns a record. It is later in the order of strings than the records of before.
func recordOf(stamp, run string, nanoseconds int64) string {
	return stamp + runField + run + " " + strconv.FormatInt(nanoseconds, 10)
}

// parse returns the stamp and the run of a record. A record without a time is not of activityd, and has no run.
func parse(record string) (stamp, run string) {
	stamp, rest, _ := strings.Cut(record, runField)
	run, nanoseconds, _ := strings.Cut(rest, " ")
	if _, err := strconv.ParseInt(nanoseconds, 10, 64); err != nil {
		return stamp, ""
	}
	return stamp, run
}

const (
	// tagCount is how many tags a cluster has: a node with 900 slots has none of them once in a million.
	tagCount = 256
	// maxRecord is how many bytes of a record are read. activityd writes fewer; another
	// program may have written any number in their place, and errors quote them.
	maxRecord = 400
)

// key is the key of the record of a tag.
func (ns *Nodes) key(tag string) string { return ns.options.Name + tag }

// tags end the keys of the records: in a cluster, so many numbers in braces that each node
// has some of them in its slots.
func (ns *Nodes) tags() []string {
	if !ns.IsCluster() {
		return []string{""}
	}
	tags := make([]string, tagCount)
	for i := range tags {
		tags[i] = "_{" + strconv.Itoa(i) + "}"
	}
	return tags
}

// look asks the server at a node for its run, and for the records beside its data, which have to be of this process' stamp.
func (n *Node) look(ctx context.Context, c redis.Cmdable) (f found) {
	f = found{node: n, records: make(map[string]string)}
	pipe, records := c.Pipeline(), make(map[string]*redis.StringCmd)
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	for _, tag := range n.ns.tags() {
		records[tag] = pipe.GetRange(ctx, n.ns.key(tag), 0, maxRecord-1)
	}
	_, failed := pipe.Exec(ctx) // each has its own error, but with a wrong password
	role, stamp := field(replication.Val(), "role:"), n.ns.options.Stamp()
	f.run = field(server.Val(), "run_id:")
	switch err := cmp.Or(server.Err(), replication.Err()); {
	case err != nil:
		if passing, refused := redisreply.Passing(err); isReply(err) && (refused || !passing) {
			err = fmt.Errorf("%w: %w", ErrHidden, err)
		}
		f.err = err
	case f.run == "" || role == "":
		if f.err = ErrHidden; failed != nil && !hasMoved(failed) {
			f.err = failed
		}
	case role != "master":
		f.run, f.err = "", errReplica
	case stamp == "":
		f.err = errNoStamp
	}
	for tag, record := range records {
		switch err := record.Err(); {
		case f.err != nil:
			return f
		case err == nil:
			f.records[tag] = record.Val()
			if made, _ := parse(record.Val()); made != "" && made != stamp {
				f.err = n.ns.options.Differ(made)
			}
		case !hasMoved(err): // else it is on another node
			f.err = err
		}
	}
	return f
}

// field returns the value of a line of INFO.
func field(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name)
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// inspect looks at a node over a connection that it makes, and so at the server to which the address leads now, and tries
// to write there.
func (n *Node) inspect(ctx context.Context) (f found) {
	_ = n.with(ProbeTimeout, func(c *redis.Client) error {
		f = n.look(ctx, c)
		for tag := range f.records {
			if f.err == nil {
				f.refused = refusal(ctx, n.ns.options.Try(ctx, c, tag))
			}
			break // a single node has it
		}
		return nil
	})
	return f
}

// refusal returns why a node does not take a write of a probe. An error of no known meaning counts as one.
func refusal(ctx context.Context, err error) error {
	if err == nil || hasMoved(err) {
		return nil
	}
	translated := Translate(ctx, "probe", err)
	if ctx.Err() == nil && !errors.Is(translated, ErrUnavailable) {
		return fmt.Errorf("probe: %w: %w", ErrRefused, err)
	}
	return translated
}

var (
	redisUp = nodeGauge("activityd_redis_up", "1 if the node of Redis answered the last probe of this process, one a second; "+
		"0 if not, or if it is a replica, hides INFO or refuses the password.")
	redisWritable = nodeGauge("activityd_redis_writable", "1 if the last probe could write to the node of Redis; 0 if not.")
	redisKnown    = nodeGauge("activityd_redis_known",
		"1 if the sets of the node of Redis are believed; 0 while it is not known whether they are old, and reads walk.")
	nodesAway = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_redis_nodes_away_ratio", Help: "Share of the nodes of Redis that cannot be used, 0 to 1.",
	})
)

func nodeGauge(name, help string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"node"})
}

// show sets the metrics of the masters, and deletes the metrics of former masters.
func show(s Status) {
	redisUp.Reset()
	redisWritable.Reset()
	redisKnown.Reset()
	is := map[bool]float64{true: 1}
	for _, n := range s.Nodes {
		isOld := errors.Is(n.Err, ErrUnknown)
		redisUp.WithLabelValues(n.Node).Set(is[takesCalls(n.Err) || isOld || errors.Is(n.Err, ErrStamp)])
		redisWritable.WithLabelValues(n.Node).Set(is[n.Err == nil])
		redisKnown.WithLabelValues(n.Node).Set(is[!isOld])
	}
	nodesAway.Set(s.Away)
}
