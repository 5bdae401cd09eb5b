package h2pool

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// watched is a state, and a count of its own of all that its invariants speak of.
type watched struct {
	Conn

	t       testing.TB
	window  int64            // of the connection, by what the peer sent
	initial int64            // of a new stream
	windows map[uint32]int64 // of streams
	last    uint32           // the newest stream
	away    bool             // GOAWAY came
	limit   uint32
	resets  int // streams that were reset since the last PING that was written
	unsure  int // and before it: the peer may not know
	taken   map[*call]bool
	whole   map[*call]bool // its end was written
	refused map[uint32]bool
	reset   map[uint32]bool // by us
	streams map[uint32]*call
	left    int // calls that may be taken still
	cutAt   int // the write that fails, counted from 1; 0: none does
	cut     int // how many bytes of it are written
	writes  int
	broken  bool // it failed
}

func watch(t testing.TB) *watched {
	t.Helper()
	return &watched{
		Conn: Conn{state: newState()}, t: t, window: firstWindow, initial: firstWindow, limit: 1 << 31,
		windows: map[uint32]int64{}, taken: map[*call]bool{}, whole: map[*call]bool{}, refused: map[uint32]bool{},
		reset: map[uint32]bool{}, streams: map[uint32]*call{}, left: 200,
	}
}

func (w *watched) call(fields []Field) (*call, []Field) {
	if w.left == 0 {
		return nil, fields
	}
	w.left--
	c := &call{done: make(chan struct{}, 2), Request: Request{Body: bytes.Repeat([]byte("x"), w.left*w.left%3000)}}
	w.taken[c] = true
	return c, fields
}

// write has the state write, and checks what. Each header counts as 20 bytes.
func (w *watched) write() {
	if w.broken {
		return
	}
	batch, _ := w.frames(w.call)
	w.writes++
	all, ends, size := batch, []int(nil), 0
	for i, f := range batch {
		if size += 9 + len(f.data); f.kind == http2.FrameHeaders {
			size += 20
		}
		if ends = append(ends, size); w.writes == w.cutAt && size <= w.cut {
			batch = all[:i+1]
		}
	}
	if w.broken = w.writes == w.cutAt; w.broken {
		if w.cut < ends0(ends) {
			batch = nil
		}
		defer func() {
			w.unwritten(all, ends, min(w.cut, size), errLost)
			w.check()
		}()
	}
	for _, f := range batch {
		switch f.kind {
		case http2.FrameHeaders:
			if f.id <= w.last || f.id%2 == 0 || w.away {
				w.t.Fatalf("stream %d is opened after %d; GOAWAY: %t", f.id, w.last, w.away)
			}
			w.last, w.windows[f.id], w.streams[f.id], w.whole[f.call] = f.id, w.initial, f.call, f.end
		case http2.FrameData:
			n := int64(len(f.data))
			w.window -= n
			w.windows[f.id] -= n
			if w.window < 0 || w.windows[f.id] < 0 || w.reset[f.id] {
				w.t.Fatalf("%d bytes in stream %d are too many: the windows are %d and %d", n, f.id, w.window, w.windows[f.id])
			}
			w.whole[f.call] = f.end
		case http2.FrameRSTStream:
			if w.reset[f.id] || f.id > w.last {
				w.t.Fatalf("stream %d is reset twice, or was never opened", f.id)
			}
			w.reset[f.id] = true
			w.resets++
		case http2.FramePing:
			if !f.ack {
				w.unsure, w.resets = w.unsure+w.resets, 0
			}
		}
	}
	opened := false
	for _, f := range batch {
		opened = opened || f.kind == http2.FrameHeaders
	}
	if n := len(w.open) + w.resets + w.unsure; opened && n > int(w.limit) {
		w.t.Fatalf("%d streams are open, and %d may be", n, w.limit)
	}
}

// see notes what the peer sent, before the state does.
func (w *watched) see(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			w.window += int64(f.Increment)
		} else if _, ok := w.windows[f.StreamID]; ok {
			w.windows[f.StreamID] += int64(f.Increment)
		}
	case *http2.SettingsFrame:
		_ = f.ForeachSetting(func(one http2.Setting) error {
			switch one.ID {
			case http2.SettingMaxConcurrentStreams:
				w.limit = one.Val
			case http2.SettingInitialWindowSize:
				for id := range w.windows {
					w.windows[id] += int64(one.Val) - w.initial
				}
				w.initial = int64(one.Val)
			}
			return nil
		})
	case *http2.PingFrame:
		if f.IsAck() && w.pinged && f.Data == [8]byte{} {
			w.unsure = 0
		}
	case *http2.RSTStreamFrame:
		if f.ErrCode == http2.ErrCodeRefusedStream {
			w.refused[f.StreamID] = true
		}
	case *http2.GoAwayFrame:
		w.away = true
		for id := range w.streams {
			if id > f.LastStreamID {
				w.refused[id] = true
			}
		}
	}
}

// check looks at what was given back.
func (w *watched) check() {
	for _, c := range w.again {
		if len(c.done) > 0 || !w.taken[c] || w.whole[c] && !w.refused[c.id] {
			w.t.Fatalf("the request of stream %d is given back, and may be processed", c.id)
		}
		delete(w.taken, c)
	}
	w.again = nil
}

// end ends the connection: all that was taken is done, once.
func (w *watched) finish() {
	w.end(errLost)
	w.check()
	for c := range w.taken {
		if len(c.done) != 1 {
			w.t.Fatalf("the request of stream %d ended %d times", c.id, len(c.done))
		}
		if c.err != nil && (c.err.Fate == Written) && !w.whole[c] || c.err == nil && c.answer.Status == 0 || len(c.answer.Body) > maxAnswer {
			w.t.Fatalf("stream %d: %+v, %+v", c.id, c.err, c.answer)
		}
		if c.err != nil && c.err.Fate != Written && w.whole[c] && !w.refused[c.id] {
			w.t.Fatalf("stream %d may be processed: %+v", c.id, c.err)
		}
	}
}

// run has a state read what a peer sends.
func (w *watched) run(sent []byte) {
	in, framer := newReader(bytes.NewReader(sent))
	if len(sent)%3 == 0 {
		w.cutAt, w.cut = 1+len(sent)%11, len(sent)%5000
	}
	w.write()
	for n := 0; ; n++ {
		in.left = maxHeaders
		f, err := framer.ReadFrame()
		if stream, ok := errors.AsType[http2.StreamError](err); ok {
			err = w.malformed(stream.StreamID, stream.Code)
		} else if err == nil {
			w.see(f)
			err = w.handle(f)
		}
		w.check()
		if err != nil {
			break
		}
		if n%3 > 0 {
			w.write()
		}
		if n%7 == 0 {
			for _, c := range w.open {
				w.cancel(c, http2.ErrCodeCancel, errClosedByTest)
				break
			}
		}
		if len(w.pongs) > maxControl || w.acks > maxControl || len(w.open) > maxOpen {
			w.t.Fatalf("%d and %d answers wait, %d streams are open", len(w.pongs), w.acks, len(w.open))
		}
	}
	w.finish()
}

// ends0 returns where the first frame ends.
func ends0(ends []int) int {
	if len(ends) == 0 {
		return 0
	}
	return ends[0]
}

var errClosedByTest = errors.New("given up")

// FuzzPeer has a hostile peer send anything.
func FuzzPeer(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomPeer(rand.New(rand.NewPCG(seed, 1))))
	}
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) { watch(t).run(sent) })
}

// A peer that sends frames in any order finds the invariants kept.
func TestInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		t.Run("", func(t *testing.T) { watch(t).run(randomPeer(rand.New(rand.NewPCG(seed, 2)))) })
	}
}

// A connection whose numbers are used up takes no more, and is closed when its last call is done.
func TestNumbersEnd(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.warm, w.nextID = true, maxID-2
	w.write()
	if len(w.open) != 2 || !w.gone || w.open[maxID] == nil {
		t.Errorf("%d streams are open; gone: %t", len(w.open), w.gone)
	}
	w.finish()
}

// randomPeer returns what a peer sends that keeps most of the rules.
func randomPeer(r *rand.Rand) []byte {
	var out, block bytes.Buffer
	framer, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(r.IntN(30))}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(r.IntN(4000))})
	top := uint32(1)
	for range 10 + r.IntN(200) {
		id := 1 + 2*uint32(r.IntN(int(top)))
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			block.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: []string{"200", "200", "410", "103"}[r.IntN(4)]})
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: r.IntN(3) > 0})
			if r.IntN(2) == 0 {
				top = min(top+1, 40)
			}
		case 4:
			_ = framer.WriteData(id, r.IntN(2) == 0, bytes.Repeat([]byte("y"), r.IntN(9000)))
		case 5:
			_ = framer.WriteRSTStream(id, http2.ErrCode(r.IntN(12)))
		case 6:
			_ = framer.WriteWindowUpdate(0, 1+uint32(r.IntN(5000)))
		case 7:
			_ = framer.WriteWindowUpdate(id, 1+uint32(r.IntN(5000)))
		case 8:
			_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: []uint32{0, 1, 5, 1000}[r.IntN(4)]})
		case 9:
			_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(r.IntN(70000))})
		case 10:
			_ = framer.WritePing(r.IntN(3) > 0, [8]byte{})
		case 11:
			if r.IntN(8) == 0 {
				_ = framer.WriteGoAway(id, http2.ErrCode(r.IntN(2)*11), []byte(strings.Repeat("d", r.IntN(9))))
			}
		}
	}
	return out.Bytes()
}
