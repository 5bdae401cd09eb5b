package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// IsLoopback reports whether an address can be reached from its own machine only. The
// address of a [Server] before Listen, nil, cannot.
func IsLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Knows reports whether a Host, a name or address with or without a port, is localhost, a
// loopback address, or the name that Listen was given. A foreign web page has none of these names.
func (s *Server) Knows(host string) bool {
	name := hostname(host)
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.IsLoopback()
	}
	return name != "" && (strings.EqualFold(name, "localhost") || strings.EqualFold(name, s.name))
}

// hostname is a host without its port, and without the brackets of IPv6.
func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

// forwarding are headers of forwarded requests.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// IsLocal reports whether a request comes from this machine and was not forwarded. A proxy
// on this machine that sends none of the headers is indistinguishable from a client.
func IsLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().IsLoopback() &&
		!slices.ContainsFunc(forwarding, func(name string) bool { return r.Header[name] != nil })
}

// LocalOnly protects a handler without tokens: while the server listens on the loopback,
// requests for a Host that it does not know get status 421 and the reason. A server that
// remote machines can reach was opened to them on purpose, and serves all requests.
func (s *Server) LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if IsLoopback(s.Addr()) && !s.Knows(r.Host) {
			http.Error(w, Misdirected(r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Misdirected is the message for a request with this Host: the reason and the remedy.
func Misdirected(host string) string {
	return fmt.Sprintf("this server answers without a token, but only under localhost, a loopback address or the name that it was told to listen on, and this request is for %.100q: "+
		"it may come from a web page whose name was made to point here; ask for localhost, or have the proxy send Host: localhost", host)
}
