package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// openLoop is one thread that sends prepared requests over connections that it keeps, by
// epoll: about ten microseconds of processor time a request, most of it the kernel's, because it shares the
// cores with what it measures. A connection carries one request at a time, and is opened
// when an arrival finds none idle. At patience its request is given up and it is reset, as by a
// client that leaves.
type openLoop struct {
	offer
	epoll   int
	conns   []loopConn
	idle    []int // indexes of conns, the one used last at the end
	unused  []int // indexes of conns that are not open
	waiting fifo[arrival]
	flying  fifo[flight]
	random  *rand.Rand
	began   time.Time
	now     time.Duration     // since began
	next    time.Duration     // arrival
	left    int               // requests under way
	again   map[int][]arrival // by the slot in which they are asked again
	result  *offered
	scratch []byte
}

// arrival is a request that the schedule has at a time.
type arrival struct {
	at    time.Duration
	ask   int // index of questions
	tries int // before it
}

// flight is a request that was given to a connection.
type flight struct {
	at   time.Duration
	conn int
	turn uint32 // of the connection: another one means that the request has ended
}

type loopConn struct {
	fd        int // -1: not open
	turn      uint32
	busy      bool
	connected bool
	arrival   arrival
	answer    []byte
	need      int // length of the whole answer; 0: the header has not come whole
}

// run offers the load, and returns when the last request has been answered or given up.
func (l offer) run(ctx context.Context) (_ *offered, err error) {
	addr, err := netip.ParseAddrPort(l.addr)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o := &openLoop{offer: l, random: rand.New(rand.NewPCG(l.seed, 2)), result: newOffered(l), scratch: make([]byte, 64<<10), again: make(map[int][]arrival)} //nolint:gosec // a schedule is no secret
	if o.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(o.epoll)) }()
	o.conns = make([]loopConn, l.conns)
	for i := range o.conns {
		o.conns[i].fd = -1
		o.unused = append(o.unused, l.conns-1-i)
	}
	defer func() {
		for i := range o.conns {
			o.close(i)
		}
	}()
	before := threadTime()
	o.began = time.Now()
	err = o.loop(ctx, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()})
	o.result.own = threadTime() - before
	o.result.took = min(time.Since(o.began), o.duration)
	return o.result, err
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (o *openLoop) loop(ctx context.Context, to *unix.SockaddrInet4) error {
	events := make([]unix.EpollEvent, 512)
	for ctx.Err() == nil {
		o.now = time.Since(o.began)
		select {
		case <-o.stop:
			o.duration = min(o.duration, o.now)
		default:
		}
		o.arrive(to)
		o.giveUp()
		if o.now >= o.duration && o.left == 0 && o.waiting.len() == 0 || o.together > 0 && o.result.good == o.together {
			return nil
		}
		n, err := o.wait(events)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		o.now = time.Since(o.began)
		for _, e := range events[:max(n, 0)] {
			o.ready(int(e.Fd), e.Events)
		}
	}
	return context.Cause(ctx)
}

// wait waits for answers until the next arrival, for half a millisecond at least: arrivals of such
// a time are sent together.
func (o *openLoop) wait(events []unix.EpollEvent) (int, error) {
	pause := 20 * time.Millisecond // within which a patience ends, or a slot
	if o.rate > 0 && o.now < o.duration {
		pause = min(pause, max(o.next-o.now, 500*time.Microsecond))
	}
	timeout := unix.NsecToTimespec(pause.Nanoseconds())                                                        // EpollWait knows milliseconds only
	if n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(o.epoll), Events: unix.POLLIN}}, &timeout, nil); n <= 0 { //nolint:gosec // a descriptor
		return 0, err
	}
	return unix.EpollWait(o.epoll, events, 0)
}

// arrive gives the requests that are due to connections. Those that find none wait.
func (o *openLoop) arrive(to *unix.SockaddrInet4) {
	for o.waiting.len() > 0 && o.give(o.waiting.first(), to) {
		o.waiting.pop()
	}
	if o.together > 0 {
		o.arriveTogether(to)
		return
	}
	if o.rate == 0 { // closed: as many as there are connections
		for n := o.left; o.now < o.duration && n < len(o.conns); n++ {
			o.result.arrived(o.now)
			if !o.give(arrival{at: o.now, ask: o.random.IntN(len(o.questions))}, to) {
				return
			}
		}
		return
	}
	for o.next <= o.now && o.next < o.duration {
		a := arrival{at: o.next, ask: o.random.IntN(len(o.questions))}
		o.next += time.Duration(o.random.ExpFloat64() / o.rate * float64(time.Second))
		o.result.arrived(a.at)
		o.result.lag = max(o.result.lag, o.now-a.at)
		o.giveOrWait(a, to)
	}
}

func (o *openLoop) giveOrWait(a arrival, to *unix.SockaddrInet4) {
	if o.waiting.len() > 0 || !o.give(a, to) {
		o.waiting.push(a)
	}
}

// arriveTogether asks for all within the first slot, and then what is to be asked again.
func (o *openLoop) arriveTogether(to *unix.SockaddrInet4) {
	for o.result.arrivals < o.together && o.now >= time.Duration(o.result.arrivals)*slotTime/time.Duration(o.together) {
		o.result.arrived(o.now)
		o.giveOrWait(arrival{at: o.now, ask: o.random.IntN(len(o.questions))}, to)
	}
	for slot, list := range o.again {
		if o.now < time.Duration(slot)*slotTime || o.now >= o.duration {
			continue
		}
		delete(o.again, slot)
		for _, a := range list {
			o.result.retries++
			a.at = o.now
			o.giveOrWait(a, to)
		}
	}
}

// askAgain asks later for what was not answered, as the widget does: Retry-After, and a pause that
// doubles, with jitter.
func (o *openLoop) askAgain(a arrival, after time.Duration) {
	if o.together == 0 {
		return
	}
	a.tries++
	pause := min(2*time.Minute, time.Second<<min(a.tries, 10))
	slot := int((o.now+after+pause/2+time.Duration(o.random.Int64N(int64(pause/2))))/slotTime) + 1
	o.again[slot] = append(o.again[slot], a)
}

// give sends a request over an idle connection or a new one, if there is one.
func (o *openLoop) give(a arrival, to *unix.SockaddrInet4) bool {
	for len(o.idle) > 0 {
		i := o.idle[len(o.idle)-1]
		o.idle = o.idle[:len(o.idle)-1]
		c := &o.conns[i]
		if c.fd < 0 || c.busy { // it was closed while it was idle, and perhaps opened again
			continue
		}
		if o.send(i, a) {
			return true
		}
	}
	if len(o.unused) == 0 {
		return false
	}
	i := o.unused[len(o.unused)-1]
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false // too many open files: as if there were no more connections
	}
	o.unused = o.unused[:len(o.unused)-1]
	c := &o.conns[i]
	c.fd, c.connected, c.answer = fd, false, c.answer[:0]
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // no port is left in TIME_WAIT
	o.fly(i, a)
	if err := unix.EpollCtl(o.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(i), //nolint:gosec // an index of a slice
	}); err != nil {
		o.broken(i)
		return true
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		o.broken(i)
	}
	return true
}

// fly notes that a connection has a request.
func (o *openLoop) fly(i int, a arrival) {
	c := &o.conns[i]
	c.busy, c.arrival, c.need = true, a, 0
	c.answer = c.answer[:0]
	o.left++
	o.flying.push(flight{a.at, i, c.turn})
}

// send writes a request, which is less than a socket takes at once.
func (o *openLoop) send(i int, a arrival) bool {
	c := &o.conns[i]
	request := o.questions[a.ask].request
	if n, err := unix.Write(c.fd, request); err != nil || n < len(request) {
		o.close(i) // it ended while it was idle
		return false
	}
	o.result.sent++
	o.fly(i, a)
	return true
}

// ready handles what happened on a connection.
func (o *openLoop) ready(i int, events uint32) {
	c := &o.conns[i]
	if c.fd < 0 {
		return
	}
	if !c.connected && events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		if code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			o.broken(i)
			return
		}
		c.connected = true
		request := o.questions[c.arrival.ask].request
		if n, err := unix.Write(c.fd, request); err != nil || n < len(request) {
			o.broken(i)
			return
		}
		o.result.sent++
	}
	if events&unix.EPOLLIN != 0 && !o.read(i) {
		return
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		if c.busy {
			o.broken(i)
		} else {
			o.close(i)
		}
	}
}

// read reads what has come. It reports whether the connection is still open.
func (o *openLoop) read(i int) bool {
	c := &o.conns[i]
	for c.fd >= 0 {
		n, err := unix.Read(c.fd, o.scratch)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return true
		case err != nil || n == 0:
			if c.busy {
				o.broken(i)
			} else {
				o.close(i)
			}
			return false
		case !c.busy: // nothing was asked
			o.close(i)
			return false
		}
		c.answer = append(c.answer, o.scratch[:n]...)
		if c.need == 0 {
			c.need = lengthOf(c.answer)
		}
		if c.need > 0 && len(c.answer) >= c.need {
			o.answered(i)
			return c.fd >= 0
		}
		if n < len(o.scratch) {
			return true
		}
	}
	return false
}

var (
	headerEnd     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
	notModified   = []byte("HTTP/1.1 304")
	closeHeader   = []byte("\r\nConnection: close\r\n")
)

// lengthOf returns the length of an answer with its header, 0 if that has not come whole, and -1
// of one that does not say it.
func lengthOf(answer []byte) int {
	end := bytes.Index(answer, headerEnd)
	if end < 0 {
		return 0
	}
	if bytes.HasPrefix(answer, notModified) { // it has no body
		return end + len(headerEnd)
	}
	_, value, _ := bytes.Cut(answer[:end+2], contentLength)
	value, _, _ = bytes.Cut(value, headerEnd[:2])
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return -1
	}
	return end + len(headerEnd) + n
}

// retryAfter is what an answer says of when to ask again, 0 if nothing.
func retryAfter(answer []byte) time.Duration {
	_, value, _ := bytes.Cut(answer, retryHeader)
	value, _, _ = bytes.Cut(value, headerEnd[:2])
	seconds, _ := strconv.Atoi(string(value))
	return time.Duration(seconds) * time.Second
}

// answered judges an answer, and makes its connection idle.
func (o *openLoop) answered(i int) {
	c := &o.conns[i]
	if !o.result.judge(&o.questions[c.arrival.ask], c.answer, c.arrival.at, o.now) {
		o.askAgain(c.arrival, retryAfter(c.answer))
	}
	c.busy = false
	c.turn++
	o.left--
	if bytes.Contains(c.answer[:min(len(c.answer), 512)], closeHeader) {
		o.close(i)
		return
	}
	o.idle = append(o.idle, i)
}

// broken ends a connection with its request, which was not answered.
func (o *openLoop) broken(i int) {
	o.result.broken++
	o.askAgain(o.conns[i].arrival, 0)
	o.close(i)
}

// close ends a connection, and with it the request that it has.
func (o *openLoop) close(i int) {
	c := &o.conns[i]
	if c.fd < 0 {
		return
	}
	_ = unix.Close(c.fd)
	c.fd = -1
	if c.busy {
		c.busy = false
		c.turn++
		o.left--
	}
	o.unused = append(o.unused, i)
}

// giveUp ends the requests whose clients have waited long enough.
func (o *openLoop) giveUp() {
	for o.waiting.len() > 0 && o.now-o.waiting.first().at >= o.patience {
		o.askAgain(o.waiting.first(), 0)
		o.waiting.pop()
		o.result.unsent++
	}
	for o.flying.len() > 0 {
		f := o.flying.first()
		c := &o.conns[f.conn]
		if c.busy && c.turn == f.turn {
			if o.now-f.at < o.patience {
				return
			}
			o.result.late++
			o.askAgain(c.arrival, 0)
			o.close(f.conn)
		}
		o.flying.pop()
	}
}

// fifo is a queue that keeps its memory.
type fifo[T any] struct {
	list []T
	head int
}

func (f *fifo[T]) len() int { return len(f.list) - f.head }
func (f *fifo[T]) first() T { return f.list[f.head] }
func (f *fifo[T]) push(x T) { f.list = append(f.list, x) }
func (f *fifo[T]) pop() {
	f.head++
	if f.head > 1024 && f.head > len(f.list)/2 {
		n := copy(f.list, f.list[f.head:])
		f.list, f.head = f.list[:n], 0
	}
}
