package webpush

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxEndpoint   = 2048 // bytes
	lookupTimeout = 5 * time.Second
)

// errNotPublic says that an address is refused by the rule for public addresses, or that a
// name has none. It does not say which of the two, nor names the address: that would tell a
// member what names exist in our network, and what they mean.
var errNotPublic = errors.New("the endpoint's host has no public address")

// special are the ranges that are not for everybody in the internet, of the IPv4 and IPv6
// special-purpose address registries of IANA, and multicast. All of IPv6 outside 2000::/3
// is special, too.
var special = prefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local: the metadata services of clouds
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
	"2001::/23",       // protocol assignments: Teredo, which has an IPv4 address inside, and others
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4, which has an IPv4 address inside
	"3fff::/20",       // documentation
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	// nat64 has an IPv4 address in its last four bytes. In a network without IPv4, push
	// services are reached by it.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// isPublic reports whether an address belongs to the public internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return a.Is4() || globalUnicast.Contains(a)
}

// rule is which addresses may be connected to: the public ones, and those of allow.
type rule struct {
	allow []netip.Prefix
}

func (r rule) permits(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, p := range r.allow {
		if p.Contains(a) {
			return true
		}
	}
	return isPublic(a)
}

// control is for a [net.Dialer]: it sees the address that is connected to, after all
// names are resolved.
func (r rule) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !r.permits(a.Addr()) {
		return errNotPublic
	}
	return nil
}

// lookup resolves a host, as [net.Resolver.LookupNetIP] does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// check resolves a host, and returns an error if it is none that r permits. A name that
// cannot be resolved at present may be good; dialling will tell.
func (r rule) check(ctx context.Context, host string, lookup lookup) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if !r.permits(a) {
			return errNotPublic
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := lookup(ctx, "ip", host)
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return errNotPublic
	}
	for _, a := range found {
		if !r.permits(a) {
			return errNotPublic
		}
	}
	return nil
}

// endpoint is a valid URL of a subscription.
type endpoint struct {
	url  *url.URL
	host string // without port, in lower case
	port string
}

// parseEndpoint returns an error, for people, that does not contain the endpoint.
func parseEndpoint(text string) (endpoint, error) {
	if len(text) > maxEndpoint {
		return endpoint{}, fmt.Errorf("the endpoint has more than %d bytes", maxEndpoint)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return endpoint{}, errors.New("the endpoint is not a URL")
	case u.Scheme != "https" || u.Opaque != "":
		return endpoint{}, errors.New("the endpoint is not an https URL")
	case u.User != nil:
		return endpoint{}, errors.New("the endpoint has user info")
	case strings.Contains(text, "#"):
		return endpoint{}, errors.New("the endpoint has a fragment")
	}
	e := endpoint{url: u, host: strings.ToLower(u.Hostname()), port: u.Port()}
	if !isHost(e.host) {
		return endpoint{}, errors.New("the endpoint has no valid host")
	}
	if e.port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return endpoint{}, errors.New("the endpoint has no valid port")
		}
		e.port = "443"
	}
	if n, err := strconv.ParseUint(e.port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != e.port {
		return endpoint{}, errors.New("the endpoint has no valid port")
	}
	return e, nil
}

// isHost reports whether host is an IP address without a zone or can be a domain name.
func isHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == ""
	}
	if host == "" || len(host) > 253 || host[0] == '.' || strings.Contains(host, "..") {
		return false
	}
	return !strings.ContainsFunc(host, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	})
}

// address is host:port.
func (e endpoint) address() string { return net.JoinHostPort(e.host, e.port) }

// origin is https://host:port.
func (e endpoint) origin() string { return "https://" + e.address() }

// audience is the origin as RFC 6454 writes it: without the default port.
func (e endpoint) audience() string {
	if e.port == "443" {
		return strings.TrimSuffix(e.origin(), ":443")
	}
	return e.origin()
}
