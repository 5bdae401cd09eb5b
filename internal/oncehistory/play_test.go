package oncehistory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/once"
)

// stage is a store with its servers, and the events that may happen to it.
type stage struct {
	measured  bool // see answer
	monotonic bool
	clients   []once.Store // that goroutines share
	age       func(ctx context.Context, name string, d time.Duration) error
	events    []event       // each is as likely
	size      int           // histories at the same time
	pause     time.Duration // between operations, at most
	latency   time.Duration // of a request and of an answer, at most; 0: that of the server

	happened  atomic.Int64 // events
	undecided atomic.Int64 // histories that porcupine did not decide in time
	inFlight  atomic.Int64 // operations
	down      atomic.Bool  // the server is being killed and started again
	dead      atomic.Bool  // it was killed, and is not being started yet
}

// event happens to a server, and so to all names, and changes none of them.
type event func(ctx context.Context, choices *rand.Rand) error

// history is the operations on a name, and their answers.
type history struct {
	name  string
	seed  uint64
	start time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// round plays histories on the same stage at the same time, on names of their own.
type round struct {
	*stage

	histories []*history
	all       sync.WaitGroup        // the clients
	err       atomic.Pointer[error] // that no history may have
}

// record does an operation, and notes the request and the answer. If its server is killed while
// it is in flight, it was applied before the kill or is not at all.
func (r *round) record(h *history, client int, in request, do func() answer) answer {
	r.inFlight.Add(1)
	defer r.inFlight.Add(-1)
	begin := time.Now()
	in.sent = begin.UnixMilli() - 1
	out := do()
	out.measured = r.measured
	isOpen := out.fate == unknown
	if isOpen {
		for r.down.Load() && !r.dead.Load() {
			r.fail(retry.Sleep(context.Background(), 100*time.Microsecond))
		}
		isOpen = !r.dead.Load() // no server was killed, or it began after that
	}
	end := time.Now()
	out.received = end.UnixMilli() + 1
	op := porcupine.Operation{ClientId: client, Input: in, Call: int64(begin.Sub(h.start)), Output: out, Return: int64(end.Sub(h.start))}
	if isOpen {
		out.received = endOfTime
		op.Output, op.Return = out, endOfTime
	}
	if out.fate == unsent || in.action == get && out.fate != answered { // it changed nothing, and says nothing
		return out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return out
}

func (r *round) fail(err error) {
	if err != nil {
		r.err.CompareAndSwap(nil, &err)
	}
}

// play plays a history for each seed.
func (s *stage) play(ctx context.Context, seeds ...uint64) ([]*history, error) {
	r := &round{stage: s}
	start := time.Now()
	for _, seed := range seeds {
		h := &history{name: fmt.Sprintf("h%d.%d", seed, played.Add(1)), seed: seed, start: start}
		r.histories = append(r.histories, h)
		r.begin(ctx, h)
	}
	if len(s.events) > 0 {
		r.all.Go(func() { r.makeHistory(ctx, rand.New(rand.NewPCG(seeds[0], 0))) })
	}
	r.all.Wait()
	if err := r.err.Load(); err != nil {
		return r.histories, *err
	}
	return r.histories, nil
}

// played numbers the names of all histories, so that none is used twice.
var played atomic.Uint64

// makeHistory makes events happen to the servers, for all histories.
func (r *round) makeHistory(ctx context.Context, choices *rand.Rand) {
	for range 1 + choices.IntN(2) {
		r.rest(ctx, choices, 10*r.pause)
		if err := r.events[choices.IntN(len(r.events))](ctx, choices); err != nil {
			r.fail(fmt.Errorf("event: %w", err))
		}
		r.happened.Add(1)
	}
}

func (r *round) rest(ctx context.Context, choices *rand.Rand, atMost time.Duration) {
	r.fail(retry.Sleep(ctx, time.Duration(choices.Int64N(int64(atMost)))))
	for r.down.Load() && ctx.Err() == nil {
		r.fail(retry.Sleep(ctx, time.Millisecond))
	}
}

// begin begins a history. It chooses the requests of its clients; the store decides the answers.
func (r *round) begin(ctx context.Context, h *history) {
	choices := func(n int) *rand.Rand { return rand.New(rand.NewPCG(h.seed, uint64(n))) }
	c := choices(0)
	terms := make([]once.Terms, 1+c.IntN(2))
	for i := range terms {
		terms[i] = once.Terms{
			Lease:    time.Duration(1+c.IntN(20)) * once.MinLease,
			Keep:     time.Duration(1+c.IntN(20)) * once.MinKeep,
			Attempts: []int{0, 1, 2, 2, 3, 3, 5}[c.IntN(7)],
		}
	}
	for n := range 2 + c.IntN(3) {
		p := &player{round: r, history: h, id: 2 + n, choices: choices(2 + n), terms: terms, lossy: c.Float64() * 0.3}
		p.store = r.clients[c.IntN(len(r.clients))]
		r.all.Go(func() {
			p.play(ctx)
		})
	}
	tester := &player{round: r, history: h, id: 1, choices: choices(1), terms: terms, store: r.clients[c.IntN(len(r.clients))]}
	r.all.Go(func() { tester.meddle(ctx) })
}

// player is a client of a name.
type player struct {
	*round
	*history

	id      int
	choices *rand.Rand
	store   once.Store
	terms   []once.Terms
	lossy   float64 // the share of operations whose answer is lost
	owners  []string
	holds   bool
}

// one reports true with a chance of 1 in n.
func (p *player) one(n int) bool { return p.choices.IntN(n) == 0 }

// play plays a client.
func (p *player) play(ctx context.Context) {
	for range 3 + p.choices.IntN(8) {
		p.rest(ctx, p.choices, p.pause)
		if p.one(60) { // a lease may end by itself
			p.rest(ctx, p.choices, once.MinLease)
		}
		in := p.choose()
		out := p.send(ctx, in)
		for tries := 0; out.fate != answered && tries < 2 && !p.one(4); tries++ { // it may be sent again
			p.rest(ctx, p.choices, p.pause)
			out = p.send(ctx, in)
		}
		p.note(in, out)
	}
}

// choose chooses the next request.
func (p *player) choose() request {
	if len(p.owners) == 0 || (!p.holds && p.one(2)) {
		p.owners = append(p.owners, fmt.Sprintf("c%d.%d", p.id, len(p.owners)+1))
	}
	owner := p.owners[len(p.owners)-1]
	if p.one(8) { // a request of an attempt that has long ended
		owner = p.owners[p.choices.IntN(len(p.owners))]
	}
	op := once.Operation{Action: once.Acquire, Owner: owner}
	if p.holds || p.one(4) {
		op.Action = []once.Action{once.Acquire, once.Extend, once.Extend, once.Finish, once.Fail, once.Fail, once.Fail, once.Release, once.Release}[p.choices.IntN(9)]
	}
	switch op.Action {
	case once.Acquire:
		op.Terms = p.terms[p.choices.IntN(len(p.terms))]
	case once.Fail:
		op.Reason = fmt.Sprintf("reason %d", p.choices.IntN(100))
	}
	if p.one(8) {
		return request{action: get}
	}
	return request{action: action(op.Action), op: op}
}

// note remembers whether the client holds the name, as far as it knows.
func (p *player) note(in request, out answer) {
	ok := out.fate == answered && out.reply.Outcome == once.OK
	switch in.op.Action {
	case once.Acquire:
		p.holds = ok || p.one(8) // a client that is not sure may go on all the same
	case once.Extend:
		p.holds = ok || p.one(2)
	case once.Finish, once.Fail, once.Release:
		p.holds = p.one(8)
	}
}

// send sends an operation, unless it is lost on the way. Its answer may be lost, too.
func (p *player) send(ctx context.Context, in request) answer {
	before, after := p.choices.Float64() < p.lossy/3, p.choices.Float64() < p.lossy
	if before && p.one(3) { // the client gives up, and the request arrives when it may
		late := *p
		late.store = p.clients[0]
		late.choices = rand.New(rand.NewPCG(p.choices.Uint64(), 0))
		p.all.Go(func() {
			late.rest(ctx, late.choices, 10*late.pause)
			late.record(late.history, late.id, in, func() answer {
				out := late.ask(ctx, in)
				if out.fate == answered {
					out = answer{fate: applied}
				}
				return out
			})
		})
		return answer{fate: unknown}
	}
	if before {
		return answer{fate: unsent}
	}
	return p.record(p.history, p.id, in, func() answer {
		out := p.ask(ctx, in)
		if after && out.fate == answered {
			return answer{fate: applied}
		}
		return out
	})
}

// ask asks the store. Whatever the error, the operation may have been applied.
func (p *player) ask(ctx context.Context, in request) (out answer) {
	if p.latency > 0 {
		p.rest(ctx, p.choices, p.latency)
		defer p.rest(ctx, p.choices, p.latency)
	}
	var err error
	switch in.action {
	case get:
		out.reply, err = p.store.Get(ctx, p.name)
	case forget:
		out.removed, err = p.store.Forget(ctx, p.name, in.force)
		if errors.Is(err, once.ErrHeld) {
			out.held, err = true, nil
		}
	case age:
		err = p.age(ctx, p.name, in.by)
	default:
		out.reply, err = p.store.Apply(ctx, p.name, in.op)
	}
	if err == nil {
		return out
	}
	if !errors.Is(err, once.ErrUnavailable) && !errors.Is(err, errCut) {
		p.fail(fmt.Errorf("%s: %w", in.action, err))
	}
	if strings.Contains(err.Error(), ": dial ") {
		return answer{fate: unsent}
	}
	return answer{fate: unknown}
}

// errCut is matched by errors of the tester's own requests that the servers' faults cause.
var errCut = errors.New("cut")

// meddle plays the tester on a name.
func (p *player) meddle(ctx context.Context) {
	for range 2 + p.choices.IntN(7) {
		p.rest(ctx, p.choices, 3*p.pause)
		in := request{action: age}
		t, n := p.terms[p.choices.IntN(len(p.terms))], p.choices.IntN(10)
		switch {
		case n < 4: // past the lease
			in.by = t.Lease + time.Duration(p.choices.IntN(50)-25)*time.Millisecond
		case n < 5: // near its end
			in.by = t.Lease - time.Duration(p.choices.IntN(10))*time.Millisecond
		case n < 6: // till it is forgotten
			in.by = t.Lease + t.Keep
		case n < 7: // so, too, if it is not held
			in.by = t.Keep
		case n < 8:
			in = request{action: forget, force: p.one(2)}
		default:
			in = request{action: get}
		}
		p.record(p.history, p.id, in, func() answer { return p.ask(ctx, in) })
	}
}

// judge returns an error that tells the history if it is wrong.
func (s *stage) judge(h *history) error {
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range h.ops {
		in, out := o.Input.(request), o.Output.(answer)
		at := out.reply.Now.UnixMilli()
		if out.fate == answered && !out.reply.Now.IsZero() && (at < in.sent || at > out.received) {
			return fmt.Errorf("history %d: the store's clock is not the machine's: %s, between %s and %s\n%s", h.seed, clock(at), clock(in.sent), clock(out.received), h)
		}
	}
	if err := checkFences(h.ops); err != nil {
		return fmt.Errorf("history %d: %w\n%s", h.seed, err, h)
	}
	h.ops = append(h.ops, porcupine.Operation{Input: request{action: end}, Call: endOfTime - 1, Output: answer{}, Return: endOfTime})
	m := model(s.monotonic)
	// A history with many open answers may take for ever, and a GB each few seconds.
	switch porcupine.CheckOperationsTimeout(m, h.ops, 30*time.Second) {
	case porcupine.Illegal:
		return h.refuted(m)
	case porcupine.Unknown:
		s.undecided.Add(1)
	}
	return nil
}
