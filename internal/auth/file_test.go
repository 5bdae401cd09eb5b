package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// following is a token file that is reloaded.
type following struct {
	tokens   *auth.Tokens
	reloader *auth.Reloader
	log      *logtest.Log
}

func follow(t *testing.T, path string) *following {
	t.Helper()
	f := &following{log: &logtest.Log{}}
	var err error
	f.tokens, f.reloader, err = auth.LoadTokens(path, f.log.Logger())
	must(t, err)
	return f
}

// lookTwice looks often enough for a change to be in use.
func lookTwice(t *testing.T, r *auth.Reloader) {
	t.Helper()
	r.Reload(t.Context(), false)
	r.Reload(t.Context(), false)
}

func (f *following) wantKnown(t *testing.T, secret string, known bool) {
	t.Helper()
	if _, err := f.tokens.Check(secret, auth.Read); known != (err == nil) || err != nil && auth.VerdictOf(err) != auth.UnknownToken {
		t.Errorf("known: %v, want %t", err, known)
	}
}

func TestTheFileIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for name, replace := range map[string]func(t *testing.T, path string){
		"written with a byte order mark": func(t *testing.T, path string) { write(t, path, "\ufeff"+lines(fresh)) },
		"linked": func(t *testing.T, path string) { // as Kubernetes does
			write(t, path+".target", lines(fresh))
			must(t, os.Symlink(path+".target", path+".link"))
			must(t, os.Rename(path+".link", path))
		},
	} {
		path := newFile(t, lines(old))
		f := follow(t, path)
		f.wantKnown(t, oldSecret, true)
		for length := range len(lines(fresh)) { // it is not taken before its end is written
			write(t, path, lines(fresh)[:length])
			f.reloader.Reload(t.Context(), false)
			f.wantKnown(t, oldSecret, true)
		}
		replace(t, path)
		lookTwice(t, f.reloader)
		f.wantKnown(t, oldSecret, false)
		if f.wantKnown(t, freshSecret, true); t.Failed() {
			t.Fatalf("a file that is %s", name)
		}
	}
}

// The content decides, and not the time: on request it is in use at once. Without tokens all requests are refused, and
// the log says so.
func TestAFileIsLoadedNow(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	path := newFile(t, lines(old))
	f := follow(t, path)
	before, err := os.Stat(path)
	must(t, err)
	write(t, path, strings.Repeat("#", len(lines(old))))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	f.wantKnown(t, oldSecret, true)
	f.reloader.Reload(t.Context(), true)
	f.wantKnown(t, oldSecret, false)
	if warned := entries(f.log, slog.LevelWarn); len(warned) != 1 || !strings.Contains(warned[0], "file has no entries, all requests are refused") {
		t.Errorf("warned %v", warned)
	}
}

// Unusable content leaves the old tokens in use, is logged once, and is refused at the start.
func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for want, spoil := range map[string]func(path string) error{
		"no such file":  os.Remove,
		"line 2: ":      func(path string) error { return os.WriteFile(path, []byte(lines(fresh)+"b read "+freshSecret), 0o600) },
		"has more than": func(path string) error { return os.Truncate(path, 1<<20+1) },
		"want a file":   func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		path := newFile(t, lines(token))
		f := follow(t, path)
		must(t, spoil(path))
		for range 5 {
			lookTwice(t, f.reloader)
		}
		f.wantKnown(t, secret, true)
		f.wantKnown(t, freshSecret, false)
		logged := entries(f.log, slog.LevelError)
		if text := strings.Join(logged, ""); len(logged) != 1 || !strings.Contains(text, path) || !strings.Contains(text, want) || strings.Contains(text, freshSecret) {
			t.Errorf("logged %v, want once: %s", logged, want)
		}
		if _, _, err := auth.LoadTokens(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at the start: %v, want %s", err, want)
		}
	}
}

// A file is warned of when it is loaded.
func TestAFileThatOthersMayReadOrChangeIsWarnedOf(t *testing.T) {
	t.Parallel()
	token, _ := issue(t, "a", auth.Read, auth.Limit{})
	path := newFile(t, lines(token))
	f := follow(t, path)
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o660: true, 0o602: true} {
		before := len(entries(f.log, slog.LevelWarn))
		must(t, os.Chmod(path, mode))
		f.reloader.Reload(t.Context(), true)
		if warned := len(entries(f.log, slog.LevelWarn)) - before; (warned == 1) != warns {
			t.Errorf("%v: %d warnings", mode, warned)
		}
	}
}

// A token goes to the end of a file, which keeps mode, owner and a link to it; a file that is missing is made for its
// owner alone. A name that is there, or a file with a fault, is refused, and the file stays as it is.
func TestAppendToken(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Admin, limitOf(t, "5/s"))
	unfinished := strings.TrimSuffix(lines(a), "\n")
	for _, test := range []struct{ before, err string }{
		{"", ""}, {unfinished, ""}, {unfinished + "\n" + lines(b), "a line above has the name b already"}, {"nonsense\n", "line 1: "},
	} {
		path := newFile(t, test.before)
		must(t, os.Chmod(path, 0o640))
		must(t, os.Symlink(path, path+".link"))
		if test.before == "" {
			must(t, os.Remove(path))
		}
		err := auth.AppendToken(path+".link", b)
		text, _ := os.ReadFile(path)
		info, _ := os.Lstat(path + ".link")
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) || string(text) != test.before {
				t.Errorf("%q: %v, and now %q; want %q", test.before, err, text, test.err)
			}
			continue
		}
		got, parseErr := auth.Parse(string(text))
		if errors.Join(err, parseErr) != nil || len(got) == 0 || !cmp.Equal(got[len(got)-1], b) || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%q: %v, %q", test.before, err, text)
		}
		mode := map[bool]os.FileMode{true: 0o600, false: 0o640}[test.before == ""]
		if is, err := os.Stat(path); err != nil || is.Mode() != mode {
			t.Errorf("%q: mode %v, %v", test.before, is.Mode(), err)
		}
	}
	if err := auth.AppendToken(t.TempDir()+"/none/tokens", a); !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a folder: %v, want one error", err)
	}
}

// While a token is added, a reader meets the tokens of before at any time.
func TestAFileIsNeverEmptyWhileATokenIsAdded(t *testing.T) {
	t.Parallel()
	first, _ := issue(t, "first", auth.Read, auth.Limit{})
	path, done := newFile(t, lines(first)), make(chan error, 1)
	for i := range 50 {
		token, _ := issue(t, fmt.Sprintf("t%d", i), auth.Read, auth.Limit{})
		go func() { done <- auth.AppendToken(path, token) }()
		for len(done) == 0 {
			if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), lines(first)) {
				t.Fatalf("read %q, %v", text, err)
			}
		}
		must(t, <-done)
	}
}

// newCertificate makes a certificate for a name, and its key, both in PEM.
func newCertificate(t testing.TB, name string, notAfter time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", raw)
}

// The certificate in use is that of the last file that was in order, and its end is measured.
func TestTheCertificateIsFollowed(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	nextWeek := tomorrow.Add(6 * 24 * time.Hour)
	cert, key := newCertificate(t, "a", tomorrow)
	newCert, newKey := newCertificate(t, "b", nextWeek)
	path, log := newFile(t, key+cert), &logtest.Log{}
	config, reloader, err := auth.LoadCertificate(path, log.Logger())
	must(t, err)
	for _, step := range []struct {
		text, shown string
		end         time.Time
		faults      int // that were logged so far
	}{
		{key + cert, "a", tomorrow, 0},
		{newCert + key, "a", tomorrow, 1},
		{"", "a", tomorrow, 2},
		{newCert + newKey, "b", nextWeek, 2},
	} {
		write(t, path, step.text)
		lookTwice(t, reloader)
		lookTwice(t, reloader)
		shown, err := config.GetCertificate(&tls.ClientHelloInfo{})
		must(t, err)
		if name := shown.Leaf.DNSNames[0]; name != step.shown || len(entries(log, slog.LevelError)) != step.faults {
			t.Errorf("%s is shown, want %s\n%s", name, step.shown, log)
		}
		if end := metricstest.Gather(t)["activityd_tls_certificate_not_after_timestamp_seconds"]; end != float64(step.end.Unix()) {
			t.Errorf("the end is %v, want %v", end, step.end.Unix())
		}
	}
	if strings.Contains(log.String(), strings.Split(newKey, "\n")[1]) {
		t.Error("the log shows the key")
	}
	if config.MinVersion != tls.VersionTLS12 {
		t.Errorf("TLS from %x on", config.MinVersion)
	}
	alone := newFile(t, cert)
	if _, _, err := auth.LoadCertificate(alone, log.Logger()); err == nil || !strings.Contains(err.Error(), alone) {
		t.Errorf("without a key: %v, want an error that names the file", err)
	}
}
