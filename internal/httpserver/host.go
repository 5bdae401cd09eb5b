package httpserver

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// IsLoopback reports whether only its own machine can reach an address. Nil, what
// is listened on before Listen, is none.
func IsLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Knows reports whether a request with this Host, a name or address with or
// without a port, was meant for this server, if only its own machine can reach it:
// whether it is localhost, a loopback address, or the name that Listen was given.
// No page that comes from elsewhere has such a name.
func (s *Server) Knows(host string) bool {
	name := hostname(host)
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.IsLoopback()
	}
	return name != "" && (strings.EqualFold(name, "localhost") || strings.EqualFold(name, s.name))
}

// hostname is a host without its port, and without the brackets of IPv6.
func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

// LocalOnly protects what asks nobody for a token. As long as only its own machine
// can reach the server, requests whose Host the server does not know do not get to
// next, but are answered 421 with a reason. A server that others can reach has
// been opened to them on purpose, and lets all through.
func (s *Server) LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLoopback(s.Addr()) || s.Knows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		misdirect(w, r.Host)
	})
}

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func misdirect(w http.ResponseWriter, host string) {
	const status = http.StatusMisdirectedRequest
	body, err := json.Marshal(problem{"about:blank", http.StatusText(status), status, Misdirected(host)})
	if err != nil { // strings and a number can always be encoded
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Misdirected says to people why a request with this Host is not answered, and
// what to do.
func Misdirected(host string) string {
	return fmt.Sprintf("whoever is on this machine is answered without a token, but only under localhost, a loopback address or the name that it was told to listen on, and this request is for %.100q: "+
		"it may come from a web page whose name was made to point here; ask for localhost, or have the proxy send Host: localhost", host)
}
