package mysql_test

import (
	"bufio"
	"database/sql"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// multiplexer is a proxy that knows as much of the protocol as it needs to send the statements of
// its clients to any of its sessions.
type multiplexer struct {
	target   string
	listener net.Listener
	shares   atomic.Bool // the sessions; otherwise each client has its own
	resets   atomic.Bool // a session before each statement

	mu       sync.Mutex // one statement at a time
	sessions []*peer
	next     int
}

// peer is one end of a connection.
type peer struct {
	net.Conn

	in   *bufio.Reader
	ends int // of a client: the packets that end a part of a result, in each
}

func newPeer(c net.Conn) *peer { return &peer{Conn: c, in: bufio.NewReader(c)} }

// read reads a packet, with its header.
func (p *peer) read() ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(p.in, header); err != nil {
		return nil, err
	}
	packet := make([]byte, 4+int(header[0])+int(header[1])<<8+int(header[2])<<16)
	copy(packet, header)
	_, err := io.ReadFull(p.in, packet[4:])
	return packet, err
}

// The first bytes of packets.
const (
	isOK, isMore, isEOF, isErr = 0x00, 0x01, 0xFE, 0xFF
	isQuit, isReset            = 0x01, 0x1F
)

// pass passes a packet on, and returns its first byte.
func pass(from, to *peer) (first byte, err error) {
	packet, err := from.read()
	if err != nil {
		return 0, err
	}
	if from.ends == 0 && len(packet) > 7 { // a client's login
		from.ends = 2
		if packet[7]&deprecatesEOF != 0 {
			from.ends = 1
		}
	}
	if len(packet) > 4 {
		first = packet[4]
	}
	_, err = to.Write(packet)
	return first, err
}

// deprecatesEOF is the capability of a client to which nothing shows the end of the columns, in
// the fourth byte of its capabilities.
const deprecatesEOF = 1

// newMultiplexer starts a multiplexer before the server of a DSN, and returns the DSN that
// leads through it.
func newMultiplexer(t *testing.T, dsn string) (m *multiplexer, through string) {
	t.Helper()
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	m = &multiplexer{target: cfg.Addr}
	cfg.Addr = filepath.Join(t.TempDir(), "proxy")
	if m.listener, err = net.Listen("unix", cfg.Addr); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := m.listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { m.serve(newPeer(client)) })
		}
	})
	t.Cleanup(func() { // after the clients have closed
		_ = m.listener.Close()
		running.Wait()
		for _, s := range m.sessions {
			_ = s.Close()
		}
	})
	return m, cfg.FormatDSN()
}

func (m *multiplexer) serve(client *peer) {
	defer client.Close()
	conn, err := net.Dial("unix", m.target)
	if err != nil {
		return
	}
	own := newPeer(conn)
	m.mu.Lock()
	m.sessions = append(m.sessions, own)
	m.mu.Unlock()
	if login(client, own) != nil {
		return
	}
	for {
		command, err := client.read()
		if err != nil || command[4] == isQuit || m.do(command, client, own) != nil {
			return
		}
	}
}

// login passes the packets of a login on.
func login(client, server *peer) error {
	if _, err := pass(server, client); err != nil {
		return err
	}
	for {
		if _, err := pass(client, server); err != nil {
			return err
		}
		first, err := pass(server, client)
		if first == isMore && err == nil { // "your password is right"
			first, err = pass(server, client)
		}
		if err != nil || first == isOK {
			return err
		}
		if first == isErr {
			return errors.New("refused")
		}
	}
}

// do has a session execute a command.
func (m *multiplexer) do(command []byte, client, own *peer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	session := own
	for m.shares.Load() && session == own { // the others, in turn
		m.next++
		session = m.sessions[m.next%len(m.sessions)]
	}
	if m.resets.Load() {
		if _, err := session.Write([]byte{1, 0, 0, 0, isReset}); err != nil {
			return err
		}
		if _, err := session.read(); err != nil {
			return err
		}
	}
	if _, err := session.Write(command); err != nil {
		return err
	}
	first, err := pass(session, client)
	if err != nil || first == isOK || first == isErr {
		return err
	}
	for ends := 0; ends < client.ends && err == nil; { // of the columns, and of the rows
		if first, err = pass(session, client); first == isEOF {
			ends++
		} else if first == isErr {
			break
		}
	}
	return err
}

// wantRefused checks an error of a session that is shared.
func wantRefused(t *testing.T, err error, word string) {
	t.Helper()
	err = mysql.Translate(t.Context(), "work", err)
	if !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "a proxy shares sessions") || !strings.Contains(err.Error(), word) {
		t.Errorf("%v, want that sessions are shared, and %q", err, word)
	}
}

func openThrough(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A connection whose statements may reach sessions of others is refused, with what shows it.
func TestSharedSessionsAreRefused(t *testing.T) {
	t.Parallel()
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		_, dsn := newMultiplexer(t, servertest.MySQLDSN(t))
		if err := openThrough(t, dsn).PingContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		m, dsn := newMultiplexer(t, servertest.MySQLDSN(t))
		for range 2 {
			if err := openThrough(t, dsn).PingContext(t.Context()); err != nil {
				t.Error(err)
			}
		}
		m.shares.Store(true)
		wantRefused(t, openThrough(t, dsn).PingContext(t.Context()), "")
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		m, dsn := newMultiplexer(t, servertest.MySQLDSN(t))
		m.resets.Store(true)
		wantRefused(t, openThrough(t, dsn).PingContext(t.Context()), " was set to ")
	})
}

// A proxy may give each connection a session of its own as long as there are few. When it shares
// them, the connections in use are given up, and others are refused.
func TestSessionsThatAreSharedLaterAreRefused(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{"shared": "CONNECTION_ID() was", "reset": " was set to "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, dsn := newMultiplexer(t, servertest.MySQLDSN(t))
			db := openThrough(t, dsn)
			first, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			second, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*sql.Conn{first, second} {
				if err := errors.Join(mysql.AskAgain(c), c.Close()); err != nil {
					t.Fatal(err)
				}
			}
			sharing := &m.shares
			if name == "reset" {
				sharing = &m.resets
			}
			sharing.Store(true)
			wantRefused(t, db.PingContext(t.Context()), word)
			sharing.Store(false)
			servertest.Eventually(t, "sessions are its own again", func() bool { return db.PingContext(t.Context()) == nil })
		})
	}
}
