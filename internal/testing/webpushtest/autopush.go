package webpushtest

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Autopush returns the side of the push service that Firefox connects to, by WebSocket. It speaks enough of
// Mozilla's protocol for a browser to subscribe and to receive, if the browser's preference
// dom.push.serverURL leads here. Autopush does not decrypt messages: the payloads of its acceptances are nil.
func (s *Server) Autopush() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrade(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer func() { _ = c.Close() }()
		for {
			text, err := c.read()
			if err != nil {
				return
			}
			if answer := s.autopush(c, text); answer != nil {
				if err := c.write(1, marshal(answer)); err != nil {
					return
				}
			}
		}
	})
}

// autopush returns the answer to a message of a browser; nil: there is none.
func (s *Server) autopush(c *socket, text []byte) any {
	var m struct {
		MessageType string `json:"messageType"`
		UAID        string `json:"uaid"`
		ChannelID   string `json:"channelID"`
		Key         string `json:"key"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil
	}
	answer := map[string]any{"messageType": m.MessageType, "status": 200}
	switch m.MessageType {
	case "":
		return struct{}{} // a ping
	case "hello":
		answer["uaid"], answer["use_webpush"], answer["broadcasts"] = m.UAID, true, struct{}{}
		if m.UAID == "" {
			answer["uaid"] = "0123456789abcdef0123456789abcdef"
		}
	case "register":
		id := rand.Text()
		u := &Subscription{id: id, endpoint: s.origin + "/push/" + id, serverKey: strings.TrimRight(m.Key, "="), online: true}
		u.forward = func(body []byte) {
			_ = c.write(1, marshal(map[string]any{
				"messageType": "notification", "channelID": m.ChannelID, "version": rand.Text(), "ttl": 60,
				"data": base64.RawURLEncoding.EncodeToString(body), "headers": map[string]string{"encoding": "aes128gcm"},
			}))
		}
		s.mu.Lock()
		s.subscriptions[id] = u
		s.mu.Unlock()
		answer["channelID"], answer["pushEndpoint"] = m.ChannelID, u.endpoint
	case "unregister":
		answer["channelID"] = m.ChannelID
	default:
		return nil
	}
	return answer
}

// socket is a WebSocket connection (RFC 6455) with a browser. A message is a single frame.
type socket struct {
	net.Conn

	reader *bufio.Reader
	mu     sync.Mutex // of writing
}

func upgrade(w http.ResponseWriter, r *http.Request) (*socket, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if key == "" {
		return nil, errors.New("no WebSocket")
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if r.Header.Get("Sec-WebSocket-Protocol") != "" {
		answer += "Sec-WebSocket-Protocol: push-notification\r\n"
	}
	if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &socket{Conn: conn, reader: buffered.Reader}, nil
}

// read returns the next text message.
func (c *socket) read() ([]byte, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(c.reader, head[:]); err != nil {
			return nil, err
		}
		length := int(head[1] & 127)
		if length == 126 {
			var more [2]byte
			if _, err := io.ReadFull(c.reader, more[:]); err != nil {
				return nil, err
			}
			length = int(binary.BigEndian.Uint16(more[:]))
		}
		if head[0]&128 == 0 || head[1]&128 == 0 || length == 127 {
			return nil, errors.New("a frame that is not for here")
		}
		frame := make([]byte, 4+length)
		if _, err := io.ReadFull(c.reader, frame); err != nil {
			return nil, err
		}
		text := frame[4:]
		for i := range text {
			text[i] ^= frame[i%4]
		}
		switch head[0] & 15 {
		case 1:
			return text, nil
		case 8:
			return nil, io.EOF
		case 9:
			if err := c.write(10, text); err != nil {
				return nil, err
			}
		}
	}
}

// write sends a frame: 1 is a text, 10 a pong.
func (c *socket) write(kind byte, text []byte) error {
	frame := []byte{128 | kind, byte(len(text))}
	if len(text) > 125 {
		frame = binary.BigEndian.AppendUint16([]byte{128 | kind, 126}, uint16(len(text)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Write(append(frame, text...))
	return err
}
