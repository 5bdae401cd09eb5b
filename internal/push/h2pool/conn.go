package h2pool

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	writeTimeout = 5 * time.Second // of a batch
	// drainTimeout is how long is read on when nothing can be written any more: the peer may have
	// said what it did not process before it closed the connection.
	drainTimeout = time.Second
	closeTimeout = time.Second // of the last words
	maxRead      = 16 << 10    // bytes of a frame that comes
	maxHeaders   = 8 * maxRead // of a header with its CONTINUATION, which may be empty
)

// Conn is a connection. Its state belongs to the pool's mu.
type Conn struct {
	Tag any // of [Options.Tag]

	p      *Pool
	nc     *tls.Conn
	opened time.Time
	wake   chan struct{} // there may be something to write
	ended  chan struct{} // nothing is read any more

	state

	h1      *http.ClientConn               // of HTTP/1.1; else nil
	next    func([]Field) (*call, []Field) // the pool's, for this connection
	idle    time.Time                      // since when it carries nothing; zero: it does
	wasWarm bool
	closing bool          // it is to be closed
	broken  bool          // nothing can be written any more
	fault   http2.ErrCode // of the peer, for which it ends
}

// run carries requests until the connection ends.
func (c *Conn) run() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	err := c.read()
	c.p.mu.Lock()
	code, hasCode := errors.AsType[http2.ConnectionError](err)
	if hasCode {
		c.fault = http2.ErrCode(code)
	}
	c.gone = true
	c.p.after(c)
	c.p.mu.Unlock()
	close(c.ended)
	if hasCode {
		_ = c.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
	} else {
		_ = c.nc.NetConn().Close() // whoever writes is not to wait for it
	}
	<-written // so that it is known what was
	c.p.mu.Lock()
	c.end(fmt.Errorf("%w: %w", errLost, err))
	c.p.after(c)
	c.p.mu.Unlock()
	_ = c.nc.Close()
}

// poke has the writer look for what is to be written.
func (c *Conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what is to be written, many frames at once: while it is writing, more gathers.
func (c *Conn) write() {
	var out bytes.Buffer
	w := writer{out: &out, framer: http2.NewFramer(&out, nil)}
	w.encoder = hpack.NewEncoder(&w.block)
	_, _ = out.WriteString(http2.ClientPreface) // a buffer takes all
	_ = w.framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxAnswer},
	)
	_ = w.framer.WriteWindowUpdate(0, connWindow-firstWindow)
	for more := false; ; {
		if !more {
			runtime.Gosched() // those that were woken with us have something to send, too
		}
		c.p.mu.Lock()
		var batch []frame
		batch, more = c.frames(c.next)
		c.p.schedule() // what is left is for another connection
		w.maxFrame = int(c.maxFrame)
		table, lowest := c.table, c.lowest
		c.lowest = table
		last, fault := c.closing && c.isIdle(), c.fault
		c.p.mu.Unlock()
		for _, size := range []uint32{lowest, table} { // what the peer forgot we must forget, too
			if size != w.encoder.MaxDynamicTableSize() {
				w.encoder.SetMaxDynamicTableSize(size)
			}
		}
		if !c.send(&w, batch) {
			return
		}
		if len(batch) > 0 {
			continue
		}
		if last {
			c.goodbye(&w, fault)
			return
		}
		select {
		case <-c.wake:
		case <-c.ended:
			if c.fault != 0 { // it was set before
				c.goodbye(&w, c.fault)
			}
			return
		}
	}
}

// goodbye says why the connection ends, and closes it.
func (c *Conn) goodbye(w *writer, code http2.ErrCode) {
	_ = w.framer.WriteGoAway(0, code, nil)
	_ = c.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
	_, _ = c.nc.Write(w.out.Bytes()) // it is closed in any case
	_ = c.nc.Close()
}

// send writes a batch, and reports whether more can be written.
func (c *Conn) send(w *writer, batch []frame) bool {
	w.ends = w.ends[:0]
	for i := range batch {
		w.frame(&batch[i])
		w.ends = append(w.ends, w.out.Len())
	}
	if w.out.Len() == 0 {
		return true
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := c.nc.Write(w.out.Bytes())
	w.out.Reset()
	if err == nil {
		return true
	}
	c.p.mu.Lock()
	c.unwritten(batch, w.ends, n, fmt.Errorf("%w: %w", errLost, err))
	c.broken = true
	c.p.after(c)
	c.p.mu.Unlock()
	_ = c.nc.SetReadDeadline(time.Now().Add(drainTimeout))
	return false
}

// writer turns frames into bytes.
type writer struct {
	out     *bytes.Buffer
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	literal []byte
	ends    []int // where the frames of a batch end in out

	maxFrame int // bytes of a frame that the peer takes
}

// frame appends a frame to out, which takes all.
func (w *writer) frame(f *frame) {
	switch f.kind {
	case http2.FrameHeaders:
		w.header(f)
	case http2.FrameData:
		_ = w.framer.WriteData(f.id, f.end, f.data)
	case http2.FrameSettings:
		_ = w.framer.WriteSettingsAck()
	case http2.FramePing:
		_ = w.framer.WritePing(f.ack, f.ping)
	case http2.FrameWindowUpdate:
		_ = w.framer.WriteWindowUpdate(f.id, f.more)
	case http2.FrameRSTStream:
		_ = w.framer.WriteRSTStream(f.id, f.code)
	}
}

// header appends the header of a request, which may be longer than a frame.
func (w *writer) header(f *frame) {
	w.block.Reset()
	for _, field := range f.fields { // the first is not Sensitive: the encoder may begin with the size of its table
		if !field.Sensitive {
			_ = w.encoder.WriteField(field)
			continue
		}
		// A literal that is never indexed, without a search for it in the tables.
		w.literal = appendString(appendString(append(w.literal[:0], 0x10), field.Name), field.Value)
		_, _ = w.block.Write(w.literal)
	}
	rest := w.block.Bytes()
	for first := true; first || len(rest) > 0; first = false {
		part := rest[:min(len(rest), w.maxFrame)]
		rest = rest[len(part):]
		if first {
			_ = w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.id, BlockFragment: part, EndStream: f.end, EndHeaders: len(rest) == 0})
		} else {
			_ = w.framer.WriteContinuation(f.id, len(rest) == 0, part)
		}
	}
}

// appendString appends a string as RFC 7541, 5.2, without Huffman's code.
func appendString(to []byte, text string) []byte {
	n := len(text)
	if n < 127 {
		return append(append(to, byte(n)), text...)
	}
	to = append(to, 127)
	for n -= 127; n >= 128; n >>= 7 {
		to = append(to, byte(n)|128)
	}
	return append(append(to, byte(n)), text...)
}

// read takes what the peer sends, until nothing more comes.
func (c *Conn) read() error {
	in, framer := newReader(&listener{c: c})
	for {
		in.left = maxHeaders
		f, err := framer.ReadFrame()
		stream, isStream := errors.AsType[http2.StreamError](err)
		switch {
		case errors.Is(err, http2.ErrFrameTooLarge):
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		case err != nil && !isStream:
			return err
		}
		c.p.mu.Lock()
		if isStream {
			err = c.malformed(stream.StreamID, stream.Code)
		} else {
			err = c.handle(f)
		}
		c.p.after(c)
		c.p.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// newReader returns what reads frames. in.left is to be maxHeaders before each.
func newReader(r io.Reader) (in *bounded, framer *http2.Framer) {
	in = &bounded{r: bufio.NewReaderSize(r, 2*maxRead)}
	framer = http2.NewFramer(nil, in)
	framer.SetReuseFrames()
	framer.SetMaxReadFrameSize(maxRead)
	framer.MaxHeaderListSize = maxAnswer
	framer.ReadMetaHeaders = hpack.NewDecoder(maxTable, nil)
	return in, framer
}

// bounded ends a connection whose peer sends a header without an end.
type bounded struct {
	r    *bufio.Reader
	left int // bytes of this frame, with its CONTINUATION
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return n, err
}

// handle takes a frame. It holds mu.
func (c *Conn) handle(frame http2.Frame) error {
	settings, isSettings := frame.(*http2.SettingsFrame)
	if !c.known && (!isSettings || settings.IsAck()) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f.StreamID, f.PseudoValue("status"), f.Fields, f.StreamEnded(), f.Truncated)
	case *http2.DataFrame:
		return c.data(f.StreamID, int(f.Length), f.Data(), f.StreamEnded())
	case *http2.RSTStreamFrame:
		return c.reset(f.StreamID, f.ErrCode)
	case *http2.SettingsFrame:
		if f.IsAck() {
			return c.useless()
		}
		list := make([]http2.Setting, 0, f.NumSettings())
		_ = f.ForeachSetting(func(one http2.Setting) error { list = append(list, one); return nil })
		return c.settings(list)
	case *http2.PingFrame:
		return c.pong(f.IsAck(), f.Data)
	case *http2.GoAwayFrame:
		return c.goAway(f.LastStreamID, f.ErrCode)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f.StreamID, f.Increment)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.useless()
}

// listener reads from the connection, and notices when the peer is silent: then it is asked by a
// PING, and is dead if it stays silent.
type listener struct {
	c     *Conn
	asked bool
}

// Read implements [io.Reader].
func (l *listener) Read(p []byte) (int, error) {
	c := l.c
	for {
		c.p.mu.Lock()
		wait := c.p.Silence
		if c.broken {
			wait = drainTimeout
		}
		c.p.mu.Unlock()
		_ = c.nc.SetReadDeadline(time.Now().Add(wait))
		n, err := c.nc.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			l.asked = false
			return n, err
		}
		c.p.mu.Lock()
		if c.broken || l.asked {
			c.p.mu.Unlock()
			return 0, errSilent
		}
		c.ping = !c.pinged
		c.p.after(c)
		c.p.mu.Unlock()
		l.asked = true
	}
}
