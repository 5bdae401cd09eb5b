package webpush

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxEndpoint = 2048 // bytes

// browsers are the push services of Chrome, Firefox, Edge and Safari.
var browsers = hosts{"fcm.googleapis.com", "updates.push.services.mozilla.com", "*.notify.windows.com", "*.push.apple.com"}

// hosts are the hosts of push services: names, names below a domain as in *.push.example.org, and addresses.
type hosts []string

// parseHosts reads a list of hosts.
func parseHosts(text string) (list hosts, err error) {
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return r == ',' || r == ' ' }) {
		if domain, _ := strings.CutPrefix(word, "*."); !isHost(strings.Trim(domain, "[]")) {
			return nil, fmt.Errorf("%q: want hosts as in push.example.org,*.push.example.org", word)
		}
		list = append(list, strings.Trim(word, "[]"))
	}
	return list, nil
}

func (h hosts) have(name string) bool {
	return slices.ContainsFunc(h, func(one string) bool {
		domain, isBelow := strings.CutPrefix(one, "*")
		return name == one || isBelow && strings.HasSuffix(name, domain) && len(name) > len(domain)
	})
}

// endpoint is a valid URL of a subscription.
type endpoint struct {
	url  *url.URL
	host string // without port, in lower case
	port string
}

// parseEndpoint returns an error, for people, that does not contain the endpoint. It is to be at a push service of
// the browsers, or at a host of others, by any port.
func parseEndpoint(text string, others hosts) (endpoint, error) {
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
	if e.port == "" && !strings.HasSuffix(u.Host, ":") {
		e.port = "443"
	}
	if n, err := strconv.ParseUint(e.port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != e.port {
		return endpoint{}, errors.New("the endpoint has no valid port")
	}
	if !isHost(e.host) || !others.have(e.host) && (!browsers.have(e.host) || e.port != "443") {
		return endpoint{}, errors.New("the endpoint is at no push service that is sent to: those of Chrome, Firefox, Edge and Safari, and those that ACTIVITYD_WEBPUSH_HOSTS names")
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

// origin is https://host:port.
func (e endpoint) origin() string { return "https://" + net.JoinHostPort(e.host, e.port) }

// audience is the origin as RFC 6454 writes it: without the default port.
func (e endpoint) audience() string {
	if e.port == "443" {
		return strings.TrimSuffix(e.origin(), ":443")
	}
	return e.origin()
}
