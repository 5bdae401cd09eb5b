package webpush

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.0", "169.253.255.255",
		"172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2600:1901:0:1c36::", "2a00:1450:4001:801::200a", "2001:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
	} {
		if !isPublic(netip.MustParseAddr(text)) {
			t.Errorf("%s is public", text)
		}
	}
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1",
		"198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
		"64:ff9b::127.0.0.1", "64:ff9b::10.1.2.3", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
		"2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "3fff::1",
		"4000::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ffff::1",
	} {
		if isPublic(netip.MustParseAddr(text)) {
			t.Errorf("%s is not public", text)
		}
	}
}

func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	r := rule{allow: prefixes("127.0.0.0/8", "fd00:1::/32")}
	for text, want := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "fd00:1::5": true, "1.1.1.1": true,
		"10.0.0.1": false, "fd00:2::1": false, "::1": false,
	} {
		if r.permits(netip.MustParseAddr(text)) != want {
			t.Errorf("%s: want %t", text, want)
		}
	}
}

func TestDialledAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"1.1.1.1:443": true, "[2606:4700::1111]:443": true,
		"127.0.0.1:443": false, "[::1]:443": false, "[fe80::1%eth0]:443": false, "nonsense": false, "": false,
	} {
		if err := (rule{}).control(t.Context(), "tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ origin, audience string }{
		"https://fcm.googleapis.com/fcm/send/abc:def":      {"https://fcm.googleapis.com:443", "https://fcm.googleapis.com"},
		"https://FCM.googleapis.com:443/x":                 {"https://fcm.googleapis.com:443", "https://fcm.googleapis.com"},
		"https://push.example.com:8443/p?q=1":              {"https://push.example.com:8443", "https://push.example.com:8443"},
		"https://[2606:4700::1111]/p":                      {"https://[2606:4700::1111]:443", "https://[2606:4700::1111]"},
		"https://1.1.1.1":                                  {"https://1.1.1.1:443", "https://1.1.1.1"},
		"https://a.example/" + strings.Repeat("x", 2030):   {"https://a.example:443", "https://a.example"},
		"HTTPS://updates.push.services.mozilla.com/wpush/": {"https://updates.push.services.mozilla.com:443", "https://updates.push.services.mozilla.com"},
	} {
		e, err := parseEndpoint(text)
		if err != nil || e.origin() != want.origin || e.audience() != want.audience {
			t.Errorf("%s: %s, %s, %v", text, e.origin(), e.audience(), err)
		}
	}
	for _, text := range []string{
		"", "x", "http://push.example.com/", "ftp://push.example.com/", "https:", "https:push.example.com", "https://", "https:///p", "//push.example.com/p",
		"https://user@push.example.com/", "https://user:secret@push.example.com/", "https://@push.example.com/", "https://push.example.com/#f", "https://push.example.com/#",
		"https://push.example.com:0/", "https://push.example.com:65536/", "https://push.example.com:0443/", "https://push.example.com:/", "https://push.example.com:x/",
		"https://push..example.com/", "https://.example.com/", "https://pu sh.example.com/", "https://push.exämple.com/", "https://push%2eexample.com/",
		"https://[fe80::1%25eth0]/", "https://[::1/", "https://push.example.com\r\nHost: x/", "https://push.example.com/\x00", "https://push.example.com\\@10.0.0.1/",
		"https://a.example/" + strings.Repeat("x", 2048), "https://" + strings.Repeat("x", 254) + "/",
	} {
		if e, err := parseEndpoint(text); err == nil {
			t.Errorf("%q is valid: %s", text, e.origin())
		} else if len(text) > 1 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: the error tells the endpoint: %v", text, err)
		}
	}
}

func TestCheckResolvesNames(t *testing.T) {
	t.Parallel()
	names := map[string][]string{
		"push.example.com":    {"1.1.1.1", "2606:4700::1111"},
		"inside.example.com":  {"10.1.2.3"},
		"both.example.com":    {"1.1.1.1", "10.1.2.3"},
		"mapped.example.com":  {"::ffff:127.0.0.1"},
		"allowed.example.com": {"192.168.7.7"},
	}
	lookup := func(_ context.Context, _, host string) (found []netip.Addr, err error) {
		if host == "slow.example.com" {
			return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
		}
		for _, text := range names[host] {
			found = append(found, netip.MustParseAddr(text))
		}
		if found == nil {
			err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return found, err
	}
	r := rule{allow: prefixes("192.168.7.0/24")}
	for host, want := range map[string]bool{
		"push.example.com": true, "allowed.example.com": true, "slow.example.com": true, "1.1.1.1": true, "192.168.7.8": true,
		"inside.example.com": false, "both.example.com": false, "mapped.example.com": false, "nowhere.example.com": false,
		"127.0.0.1": false, "::1": false, "169.254.169.254": false,
	} {
		err := r.check(t.Context(), host, lookup)
		if (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
		for _, found := range names[host] {
			if err != nil && strings.Contains(err.Error(), found) {
				t.Errorf("%s: the error tells the address: %v", host, err)
			}
		}
	}
	for _, host := range []string{"inside.example.com", "nowhere.example.com"} { // by one text: a member is not to learn which names exist inside
		if !errors.Is(r.check(t.Context(), host, lookup), errNotPublic) {
			t.Errorf("%s is not refused for having no public address", host)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, text := range []string{"https://push.example.com/p", "https://[::1]:443/", "https://u@h:1/#", "https://127.1/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEndpoint(text)
		if err != nil {
			return
		}
		// What is connected to is what was checked: URL and address agree.
		if e.url.Scheme != "https" || e.url.User != nil || !strings.EqualFold(e.url.Hostname(), e.host) || len(text) > maxEndpoint {
			t.Errorf("%q: %+v", text, e)
		}
		if host, port, err := net.SplitHostPort(e.address()); err != nil || host != e.host || port != e.port {
			t.Errorf("%q: %s, %v", text, e.address(), err)
		}
		if again, err := parseEndpoint(e.origin() + "/"); err != nil || again.origin() != e.origin() {
			t.Errorf("%q: the origin %s: %s, %v", text, e.origin(), again.origin(), err)
		}
	})
}

// A host that was found is looked up once, and one that was not again.
func TestLookUpOnce(t *testing.T) {
	t.Parallel()
	asked := map[string]int{}
	look := once(func(_ context.Context, _, host string) ([]netip.Addr, error) {
		asked[host]++
		if host == "none.example" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	})
	for range 3 {
		if found, err := look(t.Context(), "ip", "a.example"); err != nil || len(found) != 1 {
			t.Errorf("%v, %v", found, err)
		}
		if _, err := look(t.Context(), "ip", "none.example"); err == nil {
			t.Error("a host that there is not was found")
		}
	}
	if asked["a.example"] != 1 || asked["none.example"] != 3 {
		t.Errorf("asked for %v", asked)
	}
}
