package webpush

import (
	"net"
	"strings"
	"testing"
)

// Subscriptions are sent to at the push services of the browsers, and at hosts that are named.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	others, err := parseHosts("push.example.com, *.push.example.org,[2606:4700::1111] 1.1.1.1")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]struct{ origin, audience string }{
		"https://fcm.googleapis.com/fcm/send/abc:def":                     {"https://fcm.googleapis.com:443", "https://fcm.googleapis.com"},
		"https://FCM.googleapis.com:443/x":                                {"https://fcm.googleapis.com:443", "https://fcm.googleapis.com"},
		"HTTPS://updates.push.services.mozilla.com/wpush/":                {"https://updates.push.services.mozilla.com:443", "https://updates.push.services.mozilla.com"},
		"https://wns2-par02p.notify.windows.com/w/?token=x":               {"https://wns2-par02p.notify.windows.com:443", "https://wns2-par02p.notify.windows.com"},
		"https://web.push.apple.com/x":                                    {"https://web.push.apple.com:443", "https://web.push.apple.com"},
		"https://push.example.com:8443/p?q=1":                             {"https://push.example.com:8443", "https://push.example.com:8443"},
		"https://eu.push.example.org/":                                    {"https://eu.push.example.org:443", "https://eu.push.example.org"},
		"https://[2606:4700::1111]/p":                                     {"https://[2606:4700::1111]:443", "https://[2606:4700::1111]"},
		"https://1.1.1.1":                                                 {"https://1.1.1.1:443", "https://1.1.1.1"},
		"https://push.example.com/" + strings.Repeat("x", maxEndpoint-25): {"https://push.example.com:443", "https://push.example.com"},
	} {
		e, err := parseEndpoint(text, others)
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
		"https://push.example.com/" + strings.Repeat("x", maxEndpoint), "https://" + strings.Repeat("x", 254) + "/",
		"https://fcm.googleapis.com:8443/", "https://fcm.googleapis.com.example.com/", "https://a.fcm.googleapis.com/", "https://notify.windows.com/",
		"https://xnotify.windows.com/", "https://push.example.org/", "https://127.0.0.1/", "https://localhost/", "https://169.254.169.254/latest", "https://[::1]/", "https://other.example.com/",
	} {
		if e, err := parseEndpoint(text, others); err == nil {
			t.Errorf("%q is valid: %s", text, e.origin())
		} else if len(text) > 1 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: the error tells the endpoint: %v", text, err)
		}
	}
	for _, text := range []string{"https://a.example", "a.example/", "a.*.example", "*", "*.", "a.example:443", "fe80::1%eth0"} {
		if list, err := parseHosts(text); err == nil {
			t.Errorf("%q are hosts: %q", text, list)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, text := range []string{"https://push.example.com/p", "https://[::1]:443/", "https://u@h:1/#", "https://127.1/"} {
		f.Add(text)
	}
	all := hosts{"*.com", "::1", "127.0.0.1", "127.1"}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEndpoint(text, all)
		if err != nil {
			return
		}
		// The checked address is connected to: URL and address agree.
		if e.url.Scheme != "https" || e.url.User != nil || !strings.EqualFold(e.url.Hostname(), e.host) || len(text) > maxEndpoint {
			t.Errorf("%q: %+v", text, e)
		}
		if host, port, err := net.SplitHostPort(strings.TrimPrefix(e.origin(), "https://")); err != nil || host != e.host || port != e.port {
			t.Errorf("%q: %s, %v", text, e.origin(), err)
		}
		if again, err := parseEndpoint(e.origin()+"/", all); err != nil || again.origin() != e.origin() {
			t.Errorf("%q: the origin %s: %s, %v", text, e.origin(), again.origin(), err)
		}
	})
}
