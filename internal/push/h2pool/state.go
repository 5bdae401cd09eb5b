package h2pool

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"golang.org/x/net/http2"
)

const (
	// firstWindow is what RFC 9113 gives connections and streams at first, in bytes.
	firstWindow = 65535
	maxWindow   = math.MaxInt32
	// connWindow is how much the peer may send over a connection before it must wait for us.
	connWindow = 1 << 20
	// maxOpen is how many requests a connection carries at once, whatever the peer allows.
	maxOpen = 1000
	maxID   = math.MaxInt32
	// maxTable is how much of headers each end keeps, in bytes: what RFC 9113 begins with.
	maxTable = 4096
	// maxBatch is about how many bytes are written at once.
	maxBatch = 64 << 10
	// maxControl is how many answers to PING and SETTINGS may wait to be written, and maxVain how many
	// frames may come that are of no use between two answers. A peer that sends more is left.
	maxControl = 100
	maxVain    = 10000
)

// state is what is known of a connection of HTTP/2: a pure machine, without a network, a clock or
// a goroutine. What the peer sends changes it; [state.frames] says what to write. A method that
// returns an error ends the connection.
//
// The invariants, which a test checks against a peer that keeps count, whatever is sent:
//   - A stream is opened only if with it there are at most maxStreams: those that are open, and
//     those that we reset, until the peer has answered a PING that was sent after. So a lower limit
//     holds from the moment when it is known, and no reset makes room too early.
//   - DATA is sent only within the windows of its stream and of the connection.
//   - Streams are opened with rising odd numbers, and none after a GOAWAY.
//   - A call is given back, to be sent over another connection, only if its end was not written, or if
//     the peer said that it did not process it: its stream was refused, or is above the last one of a
//     GOAWAY, of the lowest if there are some. Else a call without an answer is [Written].
//   - Each call that was taken is given back or finished, once.
type state struct {
	// What the peer allows.
	maxStreams uint32
	maxFrame   uint32
	maxHeader  uint32 // bytes of a header, as RFC 9113 counts
	table      uint32 // of the encoder, in bytes
	lowest     uint32 // what table was at the lowest since the encoder was told
	initial    int64  // window of a new stream
	window     int64  // of the connection

	open   map[uint32]*call
	unsent []*call // open ones whose body is not sent to its end, in order; some may be open no more
	nextID uint32
	warm   bool // the peer answered a request
	gone   bool // no stream is opened any more
	known  bool // the peer's first SETTINGS came

	// What we allow, and what came.
	left     int64 // the peer's window of the connection
	consumed int64 // what came since the last WINDOW_UPDATE
	vain     int

	// What is to be written.
	acks    int // of SETTINGS
	pongs   [][8]byte
	resets  []frame
	ping    bool // a PING is to be sent
	pinged  bool // one is not answered
	pending int  // streams that were reset since the last PING was sent
	covered int  // and before it
	batch   []frame
	fields  []Field // of its headers

	again []*call // are to be sent over another connection
}

// frame is a frame that is to be written.
type frame struct {
	kind   http2.FrameType
	id     uint32
	call   *call // of HEADERS and DATA
	fields []Field
	data   []byte
	end    bool // of the stream
	ack    bool
	code   http2.ErrCode
	more   uint32  // of WINDOW_UPDATE
	ping   [8]byte // of PING
}

// newState returns the state of a connection before anything was sent. The peer's limit of streams
// is not known then.
func newState() state {
	return state{
		maxStreams: math.MaxUint32, maxFrame: 16 << 10, maxHeader: math.MaxUint32, table: maxTable, lowest: maxTable,
		initial: firstWindow, window: firstWindow, left: connWindow,
		open: make(map[uint32]*call), nextID: 1,
	}
}

// free returns how many calls may be taken. A new connection takes one until that is answered:
// APNs takes no more until it has checked a token, and its limit is not known before.
func (s *state) free() int {
	limit := int(min(s.maxStreams, maxOpen))
	if !s.warm {
		limit = min(limit, 1)
	}
	if s.gone || s.window <= 0 {
		return 0
	}
	return max(0, limit-len(s.open)-s.pending-s.covered)
}

// frames returns what is to be written now, which is valid until the next call. next returns a call
// that waits, nil if there is none, and appends its header to what it is given. more: there may be
// more at once.
func (s *state) frames(next func([]Field) (*call, []Field)) (batch []frame, more bool) {
	clear(s.batch) // it keeps no call alive
	s.batch, s.fields = s.batch[:0], s.fields[:0]
	for ; s.acks > 0; s.acks-- {
		s.batch = append(s.batch, frame{kind: http2.FrameSettings, ack: true})
	}
	for _, data := range s.pongs {
		s.batch = append(s.batch, frame{kind: http2.FramePing, ack: true, ping: data})
	}
	s.pongs = s.pongs[:0]
	if s.consumed >= connWindow/2 {
		s.batch = append(s.batch, frame{kind: http2.FrameWindowUpdate, more: uint32(s.consumed)})
		s.left, s.consumed = s.left+s.consumed, 0
	}
	s.batch = append(s.batch, s.resets...)
	s.resets = s.resets[:0]
	if (s.ping || s.pending > 0) && !s.pinged {
		s.batch = append(s.batch, frame{kind: http2.FramePing})
		s.ping, s.pinged, s.pending, s.covered = false, true, 0, s.pending
	}

	size := 0
	rest := s.unsent[:0]
	for _, c := range s.unsent {
		if s.open[c.id] != c {
			continue
		}
		if size < maxBatch {
			size += s.body(c)
		}
		if !c.whole {
			rest = append(rest, c)
		}
	}
	clear(s.unsent[len(rest):])
	s.unsent = rest
	for size < maxBatch && s.free() > 0 {
		begin := len(s.fields)
		var c *call
		if c, s.fields = next(s.fields); c == nil {
			return s.batch, false
		}
		s.take(c, s.fields[begin:])
		size += 9 + s.body(c)
		if !c.whole {
			s.unsent = append(s.unsent, c)
		}
	}
	return s.batch, size >= maxBatch
}

// take opens a stream for a call.
func (s *state) take(c *call, header []Field) {
	c.id, c.window = s.nextID, s.initial
	c.begun, c.whole, c.sent = true, len(c.Body) == 0, 0
	s.nextID += 2
	s.gone = s.gone || s.nextID > maxID
	s.open[c.id] = c
	s.batch = append(s.batch, frame{kind: http2.FrameHeaders, id: c.id, call: c, fields: header, end: c.whole})
}

// body sends what the windows let through of a body, and returns how many bytes.
func (s *state) body(c *call) (size int) {
	for !c.whole {
		n := min(int64(len(c.Body)-c.sent), c.window, s.window, int64(s.maxFrame))
		if n <= 0 {
			return size
		}
		data := c.Body[c.sent : c.sent+int(n)]
		c.sent += int(n)
		c.whole = c.sent == len(c.Body)
		c.window -= n
		s.window -= n
		size += 9 + int(n)
		s.batch = append(s.batch, frame{kind: http2.FrameData, id: c.id, call: c, data: data, end: c.whole})
	}
	return size
}

// drop forgets a stream, which is reset with a code unless that is 0.
func (s *state) drop(c *call, code http2.ErrCode) {
	delete(s.open, c.id)
	if code != http2.ErrCodeNo {
		s.resets = append(s.resets, frame{kind: http2.FrameRSTStream, id: c.id, code: code})
		s.pending++
	}
}

// retry gives a call back, to be sent over another connection, or ends it with what is known if
// that was tried often enough. It is not open any more.
func (s *state) retry(c *call, fate Fate, err error) {
	if fate != WentAway || !s.warm {
		c.tries++
	}
	if fate == Unwelcome || c.tries >= maxTries {
		c.finish(&Error{fate, err})
		return
	}
	c.conn, c.begun, c.whole, c.flow, c.answer = nil, false, false, 0, Answer{}
	s.again = append(s.again, c)
}

// lost ends a call of which no more will be known.
func (s *state) lost(c *call, err error) {
	switch {
	case c.answer.Status != 0:
		c.answer.Err = err
		c.finish(nil)
	case c.fate() == Written:
		c.finish(&Error{Written, err})
	default:
		s.retry(c, c.fate(), err)
	}
}

// answered ends a call that has its answer.
func (s *state) answered(c *call) {
	s.warm, s.vain = true, 0
	code := http2.ErrCodeNo
	if !c.whole {
		code = http2.ErrCodeCancel // the peer wants no more of it
	}
	s.drop(c, code)
	c.finish(nil)
}

// cancel ends a call that is not waited for any more, or whose stream is of no use. Unlike
// [state.lost] it gives nothing back.
func (s *state) cancel(c *call, code http2.ErrCode, err error) {
	s.drop(c, code)
	if c.answer.Status != 0 {
		s.lost(c, err)
		return
	}
	c.finish(&Error{c.fate(), err})
}

// malformed resets a stream for what the peer sent in it. What it wants is not known.
func (s *state) malformed(id uint32, code http2.ErrCode) error {
	c := s.open[id]
	if c == nil {
		return s.idle(id)
	}
	s.cancel(c, code, &ResetError{code})
	return nil
}

// idle returns an error if a stream was never opened: nothing may be sent in it.
func (s *state) idle(id uint32) error {
	if id%2 == 0 || id >= s.nextID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return s.useless()
}

// useless counts a frame that is of no use.
func (s *state) useless() error {
	s.vain++
	if s.vain > maxVain {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// headers takes a header or a trailer. cut: it was longer than is taken.
func (s *state) headers(id uint32, status string, fields []Field, end, cut bool) error {
	c := s.open[id]
	if c == nil {
		return s.idle(id)
	}
	if c.answer.Status == 0 {
		n, err := strconv.ParseUint(status, 10, 16)
		if err != nil || len(status) != 3 || n < 100 || n == 101 || n < 200 && end {
			return s.malformed(id, http2.ErrCodeProtocol)
		}
		if n < 200 {
			return s.useless() // the answer is still to come
		}
		c.answer.Status, c.answer.Header = int(n), fields
	} else if !end || status != "" {
		return s.malformed(id, http2.ErrCodeProtocol)
	}
	if cut {
		c.answer.Err = errHeader
	}
	if end {
		s.answered(c)
	}
	return nil
}

// data takes DATA, of which size bytes count for the windows.
func (s *state) data(id uint32, size int, data []byte, end bool) error {
	if s.left -= int64(size); s.left < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s.consumed += int64(size)
	c := s.open[id]
	switch {
	case c == nil:
		return s.idle(id)
	case c.answer.Status == 0:
		return s.malformed(id, http2.ErrCodeProtocol)
	}
	// What is kept of a body is less than the window of a stream: so a stream never waits for us.
	c.flow += size
	c.answer.Body = append(c.answer.Body, data[:min(len(data), maxAnswer-len(c.answer.Body))]...)
	switch {
	case end:
		s.answered(c)
	case c.flow >= maxAnswer:
		s.warm, s.vain = true, 0
		s.drop(c, http2.ErrCodeCancel)
		c.finish(nil)
	case len(data) == 0:
		return s.useless()
	}
	return nil
}

// reset takes RST_STREAM.
func (s *state) reset(id uint32, code http2.ErrCode) error {
	c := s.open[id]
	if c == nil {
		return s.idle(id)
	}
	err := &ResetError{code}
	if code != http2.ErrCodeRefusedStream || c.answer.Status != 0 {
		s.cancel(c, http2.ErrCodeNo, err)
		return nil
	}
	s.drop(c, http2.ErrCodeNo)
	s.retry(c, Refused, err)
	return nil
}

// settings takes SETTINGS.
func (s *state) settings(list []http2.Setting) error {
	for _, one := range list {
		if err := one.Valid(); err != nil {
			return err
		}
		switch one.ID {
		case http2.SettingEnablePush:
			if one.Val != 0 {
				return http2.ConnectionError(http2.ErrCodeProtocol)
			}
		case http2.SettingMaxConcurrentStreams:
			s.maxStreams = one.Val
		case http2.SettingMaxFrameSize:
			s.maxFrame = one.Val
		case http2.SettingMaxHeaderListSize:
			s.maxHeader = one.Val
		case http2.SettingHeaderTableSize:
			s.table = min(one.Val, maxTable)
			s.lowest = min(s.lowest, s.table)
		case http2.SettingInitialWindowSize:
			change := int64(one.Val) - s.initial
			s.initial = int64(one.Val)
			for _, c := range s.open {
				if c.window += change; c.window > maxWindow {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
			}
		}
	}
	s.known = true
	s.acks++
	if s.acks > maxControl {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return s.useless()
}

// windowUpdate takes WINDOW_UPDATE.
func (s *state) windowUpdate(id, more uint32) error {
	if id == 0 {
		if s.window += int64(more); s.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
	} else if c := s.open[id]; c == nil {
		return s.idle(id)
	} else if c.window += int64(more); c.window > maxWindow {
		return s.malformed(id, http2.ErrCodeFlowControl)
	}
	if len(s.unsent) > 0 {
		return nil
	}
	return s.useless()
}

// pong takes PING.
func (s *state) pong(ack bool, data [8]byte) error {
	switch {
	case !ack:
		if s.pongs = append(s.pongs, data); len(s.pongs) > maxControl {
			return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
	case s.pinged && data == [8]byte{}:
		s.pinged, s.covered = false, 0
		return nil
	}
	return s.useless()
}

// goAway takes GOAWAY: streams above last were not processed. There may be a second one, with a lower
// last; one that is higher changes nothing, as no stream is opened after the first.
func (s *state) goAway(last uint32, code http2.ErrCode) error {
	s.gone = true
	fate := WentAway
	if code != http2.ErrCodeNo && !s.warm {
		fate = Unwelcome
	}
	for _, c := range s.calls() {
		if c.id <= last {
			continue
		}
		s.drop(c, http2.ErrCodeNo)
		if c.answer.Status != 0 {
			s.lost(c, &GoAwayError{code})
		} else {
			s.retry(c, fate, &GoAwayError{code})
		}
	}
	return s.useless()
}

// unwritten takes back what is known of a batch of which only the first n bytes were written. ends
// has where its frames end. TLS delivers whole records only, and n counts those: what is behind
// does not exist for the peer. Nothing can be written any more: what was not written to its end
// is given back, and the rest may be answered still.
func (s *state) unwritten(batch []frame, ends []int, n int, err error) {
	s.gone = true
	begin := 0
	for i, f := range batch {
		if f.call != nil && s.open[f.id] == f.call && ends[i] > n {
			f.call.whole = f.call.whole && !f.end
			f.call.begun = f.call.begun && (f.kind != http2.FrameHeaders || begin < n)
		}
		begin = ends[i]
	}
	for _, c := range s.calls() {
		if !c.whole {
			s.drop(c, http2.ErrCodeNo)
			s.lost(c, err)
		}
	}
}

// end ends the connection: nothing more comes.
func (s *state) end(err error) {
	s.gone = true
	for _, c := range s.calls() {
		s.drop(c, http2.ErrCodeNo)
		s.lost(c, err)
	}
}

// pendingOutput reports whether [state.frames] has something to write, beside calls that wait.
func (s *state) pendingOutput() bool {
	return s.acks > 0 || len(s.pongs) > 0 || len(s.resets) > 0 || s.consumed >= connWindow/2 ||
		(s.ping || s.pending > 0) && !s.pinged || len(s.unsent) > 0 && s.window > 0
}

// calls returns those that are open, in order.
func (s *state) calls() []*call {
	return slices.SortedFunc(maps.Values(s.open), func(a, b *call) int { return cmp.Compare(a.id, b.id) })
}

// isIdle reports whether the connection carries nothing.
func (s *state) isIdle() bool { return len(s.open) == 0 }
