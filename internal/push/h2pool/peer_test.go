package h2pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is the other end of connections, at the level of frames. Each is served by a function of the
// test, and is closed when that returns.
type peer struct {
	address string
	roots   *x509.CertPool
	serving sync.WaitGroup
}

// link is a connection of a peer.
type link struct {
	*http2.Framer

	t    testing.TB
	nc   *tls.Conn
	n    int // its number, from 1
	enc  *hpack.Encoder
	text bytes.Buffer
}

// servePeer starts a peer, which ends with the test.
func servePeer(t testing.TB, serve func(*link)) *peer {
	t.Helper()
	// Only its certificate is of use here.
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	p := &peer{roots: x509.NewCertPool()}
	p.roots.AddCert(certified.Certificate())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	p.serving.Go(func() {
		for n := 1; ; n++ {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() {
				defer func() { _ = raw.Close() }()
				l := &link{t: t, n: n, nc: tls.Server(raw, config)}
				preface := make([]byte, len(http2.ClientPreface))
				if _, err := io.ReadFull(l.nc, preface); err != nil || string(preface) != http2.ClientPreface {
					return
				}
				l.Framer = http2.NewFramer(l.nc, l.nc)
				l.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
				l.enc = hpack.NewEncoder(&l.text)
				serve(l)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.serving.Wait() // the pool was closed before, and with it all connections
	})
	return p
}

// pool returns a pool of connections to the peer. change may change its options.
func (p *peer) pool(t testing.TB, change ...func(*Options)) *Pool {
	t.Helper()
	o := Options{
		Address: p.address, TLS: &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12}, MaxConns: 1,
		GrowAfter: patience, DialTimeout: patience, Silence: patience,
	}
	for _, f := range change {
		f(&o)
	}
	pool := New(o)
	t.Cleanup(pool.Close)
	return pool
}

// begin sends the first SETTINGS.
func (l *link) begin(settings ...http2.Setting) { _ = l.WriteSettings(settings...) }

// block encodes fields, as name and value in turn.
func (l *link) block(fields ...string) []byte {
	l.text.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = l.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(l.text.Bytes())
}

// answer answers a request.
func (l *link) answer(id uint32, status int) {
	_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: l.block(":status", strconv.Itoa(status)), EndHeaders: true, EndStream: true})
}

// request reads until the end of a request, and acknowledges SETTINGS and PING. ok: there is one.
func (l *link) request() (id uint32, body []byte, ok bool) {
	bodies := make(map[uint32][]byte)
	for {
		f, err := l.ReadFrame()
		if err != nil {
			return 0, nil, false
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = l.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = l.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				return f.StreamID, nil, true
			}
		case *http2.DataFrame:
			bodies[f.StreamID] = append(bodies[f.StreamID], f.Data()...)
			if f.StreamEnded() {
				return f.StreamID, bodies[f.StreamID], true
			}
		}
	}
}

// await reads until a frame that is looked for, and returns false if the connection ends before.
func (l *link) await(is func(http2.Frame) bool) bool {
	for {
		f, err := l.ReadFrame()
		if err != nil {
			return false
		}
		if is(f) {
			return true
		}
	}
}

// goneWith is for await: a GOAWAY with a code.
func goneWith(code http2.ErrCode) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		return ok && g.ErrCode == code
	}
}

// resetWith is for await: an RST_STREAM with a code.
func resetWith(code http2.ErrCode) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.ErrCode == code
	}
}

// endless does something until the connection ends.
func endless(do func() error) {
	for err := do(); err == nil; {
		err = do()
	}
}

func send(t testing.TB, p *Pool, body string) (Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return p.Send(ctx, Request{Path: "/", Header: noFields, Body: []byte(body)})
}

// What a server may do to a client, as RFC 9113 has it. The client's request is read, and has stream
// 1; then the server does its deed.
func TestWhatPeersDo(t *testing.T) {
	t.Parallel()
	headers := func(l *link, id uint32, end bool, fields ...string) {
		_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: l.block(fields...), EndHeaders: true, EndStream: end})
	}
	type want struct {
		status int
		cut    bool                   // the answer is
		fate   Fate                   // without an answer
		then   func(http2.Frame) bool // what the client sends
	}
	calm, protocol, flow := http2.ErrCodeEnhanceYourCalm, http2.ErrCodeProtocol, http2.ErrCodeFlowControl
	for name, c := range map[string]struct {
		deed func(*link)
		want want
	}{
		"an answer":                  {func(l *link) { l.answer(1, 204) }, want{status: 204}},
		"after an informational one": {func(l *link) { headers(l, 1, false, ":status", "103"); l.answer(1, 200) }, want{status: 200}},
		"unknown frames":             {func(l *link) { _ = l.WriteRawFrame(0x42, 0xff, 7, []byte("x")); l.answer(1, 200) }, want{status: 200}},
		"unknown settings":           {func(l *link) { l.begin(http2.Setting{ID: 0x99, Val: 1}); l.answer(1, 200) }, want{status: 200}},
		"PRIORITY":                   {func(l *link) { _ = l.WritePriority(1, http2.PriorityParam{Weight: 3}); l.answer(1, 200) }, want{status: 200}},
		"padding": {func(l *link) {
			headers(l, 1, false, ":status", "200")
			_ = l.WriteDataPadded(1, true, []byte("x"), make([]byte, 200))
		}, want{status: 200}},
		"trailers": {func(l *link) { headers(l, 1, false, ":status", "200"); headers(l, 1, true, "x", "y") }, want{status: 200}},
		"PING": {func(l *link) { _ = l.WritePing(false, [8]byte{1}) }, want{then: func(f http2.Frame) bool {
			g, ok := f.(*http2.PingFrame)
			return ok && g.IsAck() && g.Data == [8]byte{1}
		}, fate: Written}},
		"SETTINGS": {func(l *link) { l.begin() }, want{then: func(f http2.Frame) bool { g, ok := f.(*http2.SettingsFrame); return ok && g.IsAck() }, fate: Written}},
		"a long body": {func(l *link) {
			headers(l, 1, false, ":status", "400")
			for range 4 {
				_ = l.WriteData(1, false, make([]byte, 5000))
			}
		}, want{status: 400, then: resetWith(http2.ErrCodeCancel)}},
		"a body of padding": {func(l *link) {
			headers(l, 1, false, ":status", "400")
			for range 80 {
				_ = l.WriteDataPadded(1, false, nil, make([]byte, 255))
			}
		}, want{status: 400, then: resetWith(http2.ErrCodeCancel)}},
		"a large header": {func(l *link) { headers(l, 1, true, ":status", "200", "x", strings.Repeat("x", 15000)) }, want{status: 200}},
		"a header that is too large": {func(l *link) {
			headers(l, 1, true, ":status", "200", "x", strings.Repeat("x", 9000), "y", strings.Repeat("y", 9000))
		}, want{status: 200, cut: true}},
		"a field that is too large": {func(l *link) { headers(l, 1, true, ":status", "200", "x", strings.Repeat("~", 17000)) }, want{fate: Written}},
		"no status":                 {func(l *link) { headers(l, 1, true, "x", "y") }, want{fate: Written, then: resetWith(protocol)}},
		"a status without sense":    {func(l *link) { headers(l, 1, true, ":status", "2000") }, want{fate: Written, then: resetWith(protocol)}},
		"switching protocols":       {func(l *link) { headers(l, 1, false, ":status", "101") }, want{fate: Written, then: resetWith(protocol)}},
		"an informational end":      {func(l *link) { headers(l, 1, true, ":status", "100") }, want{fate: Written, then: resetWith(protocol)}},
		"a request's header":        {func(l *link) { headers(l, 1, true, ":method", "GET") }, want{fate: Written, then: resetWith(protocol)}},
		"pseudo fields behind":      {func(l *link) { headers(l, 1, true, "x", "y", ":status", "200") }, want{fate: Written, then: resetWith(protocol)}},
		"capital letters":           {func(l *link) { headers(l, 1, true, ":status", "200", "X", "y") }, want{fate: Written, then: resetWith(protocol)}},
		"trailers without an end":   {func(l *link) { headers(l, 1, false, ":status", "200"); headers(l, 1, false, "x", "y") }, want{status: 200, cut: true, then: resetWith(protocol)}},
		"trailers with a status":    {func(l *link) { headers(l, 1, false, ":status", "200"); headers(l, 1, true, ":status", "200") }, want{status: 200, cut: true, then: resetWith(protocol)}},
		"DATA before the header":    {func(l *link) { _ = l.WriteData(1, true, []byte("x")) }, want{fate: Written, then: resetWith(protocol)}},
		"a reset after the header":  {func(l *link) { headers(l, 1, false, ":status", "410"); _ = l.WriteRSTStream(1, http2.ErrCodeInternal) }, want{status: 410, cut: true}},
		"a reset":                   {func(l *link) { _ = l.WriteRSTStream(1, http2.ErrCodeInternal) }, want{fate: Written}},
		"a reset by NO_ERROR":       {func(l *link) { _ = l.WriteRSTStream(1, http2.ErrCodeNo) }, want{fate: Written}},
		"refused": {func(l *link) {
			_ = l.WriteRSTStream(1, http2.ErrCodeRefusedStream)
			for {
				if id, _, ok := l.request(); ok {
					_ = l.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				} else {
					return
				}
			}
		}, want{fate: Refused}},
		"an answer nobody asked for":     {func(l *link) { headers(l, 3, true, ":status", "200") }, want{fate: Written, then: goneWith(protocol)}},
		"an answer to a push":            {func(l *link) { headers(l, 2, true, ":status", "200") }, want{fate: Written, then: goneWith(protocol)}},
		"DATA nobody asked for":          {func(l *link) { _ = l.WriteData(5, true, nil) }, want{fate: Written, then: goneWith(protocol)}},
		"DATA on stream 0":               {func(l *link) { _ = l.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) }, want{fate: Written, then: goneWith(protocol)}},
		"HEADERS on stream 0":            {func(l *link) { _ = l.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, []byte{0x88}) }, want{fate: Written, then: goneWith(protocol)}},
		"a reset of an idle stream":      {func(l *link) { _ = l.WriteRSTStream(7, http2.ErrCodeCancel) }, want{fate: Written, then: goneWith(protocol)}},
		"a reset of stream 0":            {func(l *link) { _ = l.WriteRawFrame(http2.FrameRSTStream, 0, 0, make([]byte, 4)) }, want{fate: Written, then: goneWith(protocol)}},
		"a short reset":                  {func(l *link) { _ = l.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 3)) }, want{fate: Written, then: goneWith(http2.ErrCodeFrameSize)}},
		"a window for an idle stream":    {func(l *link) { _ = l.WriteWindowUpdate(9, 1) }, want{fate: Written, then: goneWith(protocol)}},
		"a window of nothing":            {func(l *link) { _ = l.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4)) }, want{fate: Written, then: goneWith(protocol)}},
		"a stream's window of nothing":   {func(l *link) { _ = l.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)) }, want{fate: Written, then: resetWith(protocol)}},
		"a window that overflows":        {func(l *link) { _ = l.WriteWindowUpdate(0, maxWindow) }, want{fate: Written, then: goneWith(flow)}},
		"a stream's window overflows":    {func(l *link) { _ = l.WriteWindowUpdate(1, maxWindow) }, want{fate: Written, then: resetWith(flow)}},
		"a first window that overflows":  {func(l *link) { l.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, want{fate: Written, then: goneWith(flow)}},
		"a frame size that is too small": {func(l *link) { l.begin(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }, want{fate: Written, then: goneWith(protocol)}},
		"pushes are allowed":             {func(l *link) { l.begin(http2.Setting{ID: http2.SettingEnablePush, Val: 1}) }, want{fate: Written, then: goneWith(protocol)}},
		"a push": {func(l *link) {
			_ = l.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
		}, want{fate: Written, then: goneWith(protocol)}},
		"SETTINGS of a stream":          {func(l *link) { _ = l.WriteRawFrame(http2.FrameSettings, 0, 1, nil) }, want{fate: Written, then: goneWith(protocol)}},
		"SETTINGS of a wrong length":    {func(l *link) { _ = l.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)) }, want{fate: Written, then: goneWith(http2.ErrCodeFrameSize)}},
		"PING of a stream":              {func(l *link) { _ = l.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)) }, want{fate: Written, then: goneWith(protocol)}},
		"PING of a wrong length":        {func(l *link) { _ = l.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7)) }, want{fate: Written, then: goneWith(http2.ErrCodeFrameSize)}},
		"GOAWAY of a stream":            {func(l *link) { _ = l.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8)) }, want{fate: Written, then: goneWith(protocol)}},
		"a frame that is too large":     {func(l *link) { _ = l.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxRead+1)) }, want{fate: Written, then: goneWith(http2.ErrCodeFrameSize)}},
		"padding longer than its frame": {func(l *link) { _ = l.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 0}) }, want{fate: Written, then: goneWith(protocol)}},
		"fields that cannot be decoded": {func(l *link) {
			_ = l.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0xff, 0xff, 0xff})
		}, want{fate: Written, then: goneWith(http2.ErrCodeCompression)}},
		"CONTINUATION without HEADERS": {func(l *link) { _ = l.WriteContinuation(1, true, nil) }, want{fate: Written, then: goneWith(protocol)}},
		"DATA amid a header": {func(l *link) {
			_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: l.block(":status", "200")})
			_ = l.WriteRawFrame(http2.FrameData, 0, 1, nil)
		}, want{fate: Written, then: goneWith(protocol)}},
		"another stream amid a header": {func(l *link) {
			_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: l.block(":status", "200")})
			_ = l.WriteContinuation(3, true, nil)
		}, want{fate: Written, then: goneWith(protocol)}},
		"empty CONTINUATION without end": {func(l *link) {
			_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: l.block(":status", "200")})
			endless(func() error { return l.WriteContinuation(1, false, nil) })
		}, want{fate: Written}},
		"CONTINUATION without end": {func(l *link) {
			_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: l.block(":status", "200")})
			endless(func() error { return l.WriteContinuation(1, false, l.block("x", "y")) })
		}, want{fate: Written}},
		"too much DATA": {func(l *link) {
			headers(l, 1, false, ":status", "200")
			endless(func() error { return l.WriteData(1, false, make([]byte, 10000)) })
		}, want{status: 200}},
		"PING without end": {func(l *link) {
			endless(func() error { return l.WritePing(false, [8]byte{}) })
		}, want{fate: Written}},
		"PING answers without end": {func(l *link) {
			endless(func() error { return l.WritePing(true, [8]byte{}) })
		}, want{fate: Written}},
		"SETTINGS without end": {func(l *link) {
			endless(func() error { return l.WriteSettings() })
		}, want{fate: Written}},
		"WINDOW_UPDATE without end": {func(l *link) {
			endless(func() error { return l.WriteWindowUpdate(1, 1) })
		}, want{fate: Written}},
		"PRIORITY without end": {func(l *link) {
			endless(func() error { return l.WritePriority(1, http2.PriorityParam{}) })
		}, want{fate: Written}},
		"empty DATA without end": {func(l *link) {
			headers(l, 1, false, ":status", "200")
			endless(func() error { return l.WriteData(1, false, nil) })
		}, want{status: 200, cut: true}},
		"informational ones without end": {func(l *link) {
			for {
				l.text.Reset()
				if l.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: l.block(":status", "100"), EndHeaders: true}) != nil {
					return
				}
			}
		}, want{fate: Written}},
		"many useless frames are refused": {func(l *link) {
			for range maxVain + 1 {
				_ = l.WritePriority(1, http2.PriorityParam{})
			}
		}, want{fate: Written, then: goneWith(calm)}},
		"GOAWAY": {func(l *link) { _ = l.WriteGoAway(1, http2.ErrCodeNo, nil); l.answer(1, 200) }, want{status: 200, then: goneWith(http2.ErrCodeNo)}},
		"GOAWAY twice": {func(l *link) {
			_ = l.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
			_ = l.WriteGoAway(1, http2.ErrCodeNo, []byte("debug"))
			l.answer(1, 200)
		}, want{status: 200}},
		"unwelcome":    {func(l *link) { _ = l.WriteGoAway(0, calm, nil) }, want{fate: Unwelcome}},
		"the end":      {func(l *link) { _ = l.nc.Close() }, want{fate: Written}},
		"half a frame": {func(l *link) { _, _ = l.nc.Write([]byte{0, 0, 9}); _ = l.nc.CloseWrite() }, want{fate: Written}},
		"no HTTP/2":    {func(l *link) { _, _ = io.WriteString(l.nc, "HTTP/1.1 400 Bad Request\r\n\r\n") }, want{fate: Written}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := servePeer(t, func(l *link) {
				if l.n > 1 { // the client comes again where it may
					l.begin()
					for id, _, ok := l.request(); ok; id, _, ok = l.request() {
						l.answer(id, 200)
					}
					return
				}
				l.begin()
				if id, body, ok := l.request(); !ok || id != 1 || string(body) != "text" {
					t.Errorf("the request is %d, %q", id, body)
					return
				}
				c.deed(l)
				if c.want.then != nil && !l.await(c.want.then) {
					t.Error("the client does not say what it should")
				}
				_ = l.nc.CloseWrite()
				_, _ = io.Copy(io.Discard, l.nc)
			})
			pool := p.pool(t)
			a, err := send(t, pool, "text")
			switch {
			case a.Status != c.want.status || (a.Err != nil) != c.want.cut:
				t.Errorf("the answer is %d, %v; the error %v, fate %d", a.Status, a.Err, err, FateOf(err))
			case a.Status == 0 && FateOf(err) != c.want.fate:
				t.Errorf("the fate is %d, want %d: %v", FateOf(err), c.want.fate, err)
			case len(a.Body) > maxAnswer:
				t.Errorf("%d bytes of the body are kept", len(a.Body))
			}
		})
	}
}

// A connection begins with SETTINGS.
func TestPeersBeginWithSettings(t *testing.T) {
	t.Parallel()
	p := servePeer(t, func(l *link) {
		id, _, _ := l.request()
		l.answer(id, 200)
		if !l.await(goneWith(http2.ErrCodeProtocol)) {
			t.Error("the client goes on")
		}
	})
	if _, err := send(t, p.pool(t), "text"); err == nil || FateOf(err) != Written {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
}

// Headers that are longer than a frame are written with CONTINUATION, bodies within the windows.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("~", 50000)
	body := strings.Repeat("body", 50000)
	p := servePeer(t, func(l *link) {
		l.MaxHeaderListSize = 1 << 20
		l.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_, err := l.ReadFrame()
		for size := 0; err == nil; {
			var f http2.Frame
			if f, err = l.ReadFrame(); err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				got := ""
				for _, field := range f.RegularFields() {
					got += field.Value
				}
				if !strings.Contains(got, large) || f.PseudoValue("authority") == "" {
					t.Error("the header is another one")
				}
			case *http2.DataFrame:
				size += len(f.Data())
				if f.StreamEnded() && size != len(body) {
					t.Errorf("%d bytes came, want %d", size, len(body))
				}
				if f.StreamEnded() {
					l.answer(f.StreamID, 200)
					return
				}
				_ = l.WriteWindowUpdate(0, f.Length)
				_ = l.WriteWindowUpdate(f.StreamID, 30000)
			}
		}
	})
	a, err := p.pool(t).Send(t.Context(), Request{Path: "/", Body: []byte(body), Header: func(_ any, to []Field) ([]Field, error) {
		return append(to, Field{Name: "a", Value: large}, Field{Name: "b", Value: large, Sensitive: true}), nil
	}})
	if err != nil || a.Status != 200 {
		t.Errorf("%d, %v", a.Status, err)
	}
}

// A peer that answers no PING is dead, and one that answers is not.
func TestSilence(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{true, false} {
		t.Run(strconv.FormatBool(alive), func(t *testing.T) {
			t.Parallel()
			p := servePeer(t, func(l *link) {
				l.begin()
				for pings := 0; ; {
					f, err := l.ReadFrame()
					if err != nil {
						return
					}
					if ping, ok := f.(*http2.PingFrame); ok && alive {
						_ = l.WritePing(true, ping.Data)
						pings++
						if pings == 2 {
							l.answer(1, 200)
						}
					}
				}
			})
			pool := p.pool(t, func(o *Options) { o.Silence = 2 * time.Second })
			if _, err := send(t, pool, "text"); (err == nil) != alive || err != nil && (!errors.Is(err, errSilent) || FateOf(err) != Written) {
				t.Error(err)
			}
		})
	}
}

// A connection that carried nothing for long is closed, with a GOAWAY, even if its peer is talkative.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	for silence, talks := range map[time.Duration]bool{time.Second: false, patience: true} {
		closed := make(chan bool, 1)
		p := servePeer(t, func(l *link) {
			l.begin()
			id, _, _ := l.request()
			l.answer(id, 200)
			if talks {
				_ = l.WritePing(false, [8]byte{1})
			}
			closed <- l.await(func(f http2.Frame) bool {
				if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() == talks {
					_ = l.WritePing(!talks, ping.Data)
				}
				return goneWith(http2.ErrCodeNo)(f)
			})
		})
		pool := p.pool(t, func(o *Options) { o.Silence, o.IdleTimeout = silence, time.Millisecond })
		if _, err := send(t, pool, "text"); err != nil {
			t.Fatal(err)
		}
		select {
		case polite := <-closed:
			if !polite {
				t.Errorf("talks %t: it says nothing", talks)
			}
		case <-time.After(patience / 2):
			t.Errorf("talks %t: it is open still", talks)
		}
	}
}

// What a caller does not wait for is reset, and makes room when the peer knows it.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	p := servePeer(t, func(l *link) {
		l.begin(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		if _, _, ok := l.request(); !ok {
			return
		}
		close(asked)
		if !l.await(resetWith(http2.ErrCodeCancel)) {
			t.Error("it is not reset")
		}
		ping := [8]byte{}
		if !l.await(func(f http2.Frame) bool { _, ok := f.(*http2.PingFrame); return ok }) {
			t.Error("the peer is not asked whether it knows")
		}
		_ = l.WritePing(true, ping)
		if id, body, ok := l.request(); ok && string(body) == "next" {
			l.answer(id, 200)
		}
	})
	pool := p.pool(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := pool.Send(ctx, Request{Path: "/", Header: noFields, Body: []byte("text")}); !errors.Is(err, context.Canceled) || FateOf(err) != Written {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
	if _, err := pool.Send(ctx, Request{Path: "/", Header: noFields}); FateOf(err) != NotWritten {
		t.Errorf("without time: %v", err)
	}
	if a, err := send(t, pool, "next"); err != nil || a.Status != 200 {
		t.Errorf("the next one: %v", err)
	}
}

// What the peer answered is known, though the rest of the answer does not come in time.
func TestTimeIsOverAmidAnAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := servePeer(t, func(l *link) {
		l.begin()
		if id, _, ok := l.request(); ok {
			_ = l.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: l.block(":status", "410"), EndHeaders: true})
			_ = l.WriteData(id, false, []byte("gone"))
			_ = l.WritePing(false, [8]byte{1})
			l.await(func(f http2.Frame) bool { ping, ok := f.(*http2.PingFrame); return ok && ping.IsAck() })
			cancel() // all was read
			if !l.await(resetWith(http2.ErrCodeCancel)) {
				t.Error("it is not reset")
			}
		}
	})
	a, err := p.pool(t).Send(ctx, Request{Path: "/", Header: noFields, Body: []byte("text")})
	if err != nil || a.Status != 410 || string(a.Body) != "gone" || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("%d, %q, %v; %v", a.Status, a.Body, a.Err, err)
	}
}

// A peer that reads nothing keeps no pool from being closed.
func TestCloseAmidAWrite(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	p := servePeer(t, func(l *link) {
		l.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
		_ = l.WriteWindowUpdate(0, maxWindow-firstWindow)
		l.await(func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
		close(begun)
		<-end
	})
	var open atomic.Int32
	pool := p.pool(t, func(o *Options) { o.Count = func(delta int) { open.Add(int32(delta)) } })
	go func() {
		<-begun
		pool.Close()
		close(end)
	}()
	if _, err := send(t, pool, strings.Repeat("x", 16<<20)); !errors.Is(err, ErrClosed) {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
	<-end
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// What could not be written to its end, as the peer closed the connection amid it, goes over another
// one.
func TestAWriteThatFails(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 16<<20) // more than the buffers of both systems hold
	p := servePeer(t, func(l *link) {
		l.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
		_ = l.WriteWindowUpdate(0, maxWindow-firstWindow)
		if l.n == 1 {
			l.await(func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
			_ = l.nc.NetConn().(*net.TCPConn).SetLinger(0)
			return
		}
		if id, got, ok := l.request(); ok && string(got) == body {
			l.answer(id, 200)
		}
	})
	if a, err := send(t, p.pool(t), body); err != nil || a.Status != 200 {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
}

// A request whose body is not written to its end was processed by no one, and goes over another
// connection.
func TestWrittenInPart(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 2*firstWindow)
	p := servePeer(t, func(l *link) {
		if l.n == 1 {
			l.begin()
			l.await(func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
			return
		}
		l.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		_ = l.WriteWindowUpdate(0, 1<<20)
		if id, got, ok := l.request(); ok && string(got) == body {
			l.answer(id, 200)
		}
	})
	if a, err := send(t, p.pool(t), body); err != nil || a.Status != 200 {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
}

// A header that cannot be made harms no other request, and neither does one that the peer does not
// take.
func TestHeadersThatCannotBe(t *testing.T) {
	t.Parallel()
	p := servePeer(t, func(l *link) {
		l.begin(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 500})
		for id, _, ok := l.request(); ok; id, _, ok = l.request() {
			l.answer(id, 200)
		}
	})
	pool := p.pool(t)
	if _, err := send(t, pool, "text"); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no key")
	half := strings.Repeat("x", firstWindow/2)
	for range 3 { // what is not written takes nothing of a window
		if _, err := pool.Send(t.Context(), Request{Path: "/", Body: []byte(half), Header: func(_ any, to []Field) ([]Field, error) { return to, broken }}); !errors.Is(err, broken) || FateOf(err) != NotWritten {
			t.Errorf("fate %d: %v", FateOf(err), err)
		}
	}
	if _, err := pool.Send(t.Context(), Request{Path: strings.Repeat("x", 500), Header: noFields}); err == nil || FateOf(err) != NotWritten {
		t.Errorf("fate %d: %v", FateOf(err), err)
	}
	if _, err := send(t, pool, half); err != nil {
		t.Error(err)
	}
}

// The table of fields is as small as the peer says, and as it was in between.
func TestTablesShrink(t *testing.T) {
	t.Parallel()
	p := servePeer(t, func(l *link) {
		l.begin()
		for n := 0; ; n++ {
			id, _, ok := l.request()
			if !ok {
				return
			}
			if n == 1 { // both come before another request is written
				l.ReadMetaHeaders.SetMaxDynamicTableSize(0)
				l.ReadMetaHeaders.SetMaxDynamicTableSize(4096)
				l.begin(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
				l.begin(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096})
			}
			l.answer(id, 200)
		}
	})
	pool := p.pool(t)
	for range 4 {
		a, err := pool.Send(t.Context(), Request{Path: "/", Header: func(_ any, to []Field) ([]Field, error) {
			return append(to, Field{Name: "authorization", Value: "bearer"}), nil
		}})
		if err != nil || a.Status != 200 {
			t.Fatalf("%d, %v", a.Status, err)
		}
	}
}
