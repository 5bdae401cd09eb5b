package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// values holds a few settings.
type values struct {
	need     int
	grace    time.Duration
	role     string
	dsn, url string
}

func newFlags() (*values, *pflag.FlagSet) {
	v, f := &values{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Var(settings.NewNumber(&v.need, 10, 1, 100, "candidates"), "need", "what a read wants")
	f.Var(settings.NewNumber(&v.grace, time.Second, time.Millisecond, time.Hour, ""), "grace", "how long")
	f.Var(settings.NewChoice(&v.role, "all", "api"), "role", "what it does")
	f.StringVar(&v.dsn, "mysql-dsn", "", "`dsn` of the database")
	f.StringVar(&v.url, "apns-url", "", "`URL` of it")
	settings.NoFlag(f, "apns-url", "role")
	return v, f
}

// load loads a file of this text.
func load(t *testing.T, text string, environ ...string) (v *values, warned string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	v, f := newFlags()
	_, all := newFlags()
	var warnings strings.Builder
	err = settings.Loader{Settings: all, Environ: environ, Others: []string{"ACTIVITYD_FENCE"}, Warnings: &warnings}.Load(f, path)
	if err != nil {
		err = withoutWordError{err, filepath.Dir(path) + "/"}
	}
	return v, warnings.String(), err
}

// withoutWordError is an error whose text leaves a word out.
type withoutWordError struct {
	error
	word string
}

func (e withoutWordError) Error() string { return strings.ReplaceAll(e.error.Error(), e.word, "") }

// A line of the file means the same to systemd and to shells.
func TestFile(t *testing.T) {
	t.Parallel()
	v, _, err := load(t, "\ufeffACTIVITYD_ROLE=api\n# a comment\n\n  ACTIVITYD_NEED=20  \r\n\tACTIVITYD_GRACE=\"2s\"\nACTIVITYD_MYSQL_DSN='u:p\"\\$ #w@tcp(h)/d'\n#ACTIVITYD_NO=1\nACTIVITYD_APNS_URL=\"it's\"")
	must(t, err)
	if want := (values{20, 2 * time.Second, "api", `u:p"\$ #w@tcp(h)/d`, "it's"}); *v != want {
		t.Errorf("%+v, want %+v", *v, want)
	}
	v, _, err = load(t, "ACTIVITYD_MYSQL_DSN=u:p@tcp(h:3306)/d?a=b&c=d\nACTIVITYD_APNS_URL=''\n", "ACTIVITYD_NEED=30", "ACTIVITYD_MYSQL_DSN=")
	must(t, err)
	if want := (values{30, time.Second, "all", "", ""}); *v != want {
		t.Errorf("%+v, want %+v", *v, want)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	const quotes = "want the value in single quotes"
	for text, want := range map[string]string{
		"\n\nACTIVITYD_NEDE=1":                         "settings:3: there is no setting ACTIVITYD_NEDE",
		"MYSQL_DSN=s3cret":                             "settings:1: there is no setting MYSQL_DSN",
		"export ACTIVITYD_GRACE=1s":                    "there is no setting export ACTIVITYD_GRACE",
		"ACTIVITYD_APNS=s3cret":                        "there is no setting ACTIVITYD_APNS",
		"activityd_need=1":                             "there is no setting activityd_need",
		"ACTIVITYD_CONFIG=other":                       "there is no setting ACTIVITYD_CONFIG",
		"s3cret":                                       "settings:1: want NAME='value'",
		"ACTIVITYD_NEED: u:s3cret@tcp(h)/d?tls=true":   "settings:1: want NAME='value'",
		"ACTIVITYD_NEED =1":                            "settings:1: want NAME='value'",
		"ACTIVITYD_NEED=1\nACTIVITYD_NEED=2":           "settings:2: ACTIVITYD_NEED is there twice",
		"ACTIVITYD_MYSQL_DSN=s3cret # not a comment":   "settings:1: ACTIVITYD_MYSQL_DSN: " + quotes,
		"ACTIVITYD_MYSQL_DSN='s3cret":                  quotes,
		"ACTIVITYD_MYSQL_DSN='s3'cret'":                quotes,
		"ACTIVITYD_MYSQL_DSN=\"s3\\\"cret\"":           quotes,
		"ACTIVITYD_MYSQL_DSN=\"s3$cret\"":              quotes,
		"ACTIVITYD_MYSQL_DSN='":                        quotes,
		"ACTIVITYD_MYSQL_DSN= s3cret":                  quotes,
		"ACTIVITYD_NEED=s3cret":                        "settings: ACTIVITYD_NEED: cannot be read: want 1 to 100 candidates",
		"ACTIVITYD_ROLE=s3cret":                        "settings: ACTIVITYD_ROLE: cannot be read: want all|api",
		"ACTIVITYD_X=1\nACTIVITYD_Y=1\nACTIVITYD_NEED": "settings:3: ",
	} {
		_, _, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Other programs use the prefix, too.
func TestVariablesThatAreNoSettings(t *testing.T) {
	t.Parallel()
	_, warnings, err := load(t, "", "ACTIVITYD_PORT=tcp://10.0.0.1:80", "ACTIVITYD_FENCE=7", "ACTIVITYD_TEST_X=1", "NEED=7", "ACTIVITYD_CONFIG=/no/file")
	if want := "activityd: ACTIVITYD_PORT has no effect: there is no such setting\n"; err != nil || warnings != want {
		t.Errorf("%v, %q", err, warnings)
	}
	_, _, err = load(t, "", "ACTIVITYD_NEED=s3cret")
	if want := "ACTIVITYD_NEED: cannot be read: want 1 to 100 candidates"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestFlagsWinAndSomeSettingsHaveNone(t *testing.T) {
	t.Parallel()
	v, f := newFlags()
	must(t, f.Parse([]string{"--need=3", "--apns-url=s3cret"}))
	_, all := newFlags()
	err := settings.Loader{Settings: all, Environ: []string{"ACTIVITYD_NEED=4", "ACTIVITYD_GRACE=4s"}}.Load(f, "")
	if want := "unknown flag: --apns-url; it is the setting ACTIVITYD_APNS_URL, for the environment or the file of --config"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if v.need != 3 || v.grace != 4*time.Second {
		t.Errorf("%+v", *v)
	}
	for flag, want := range map[string]string{"need": "--need (ACTIVITYD_NEED)", "apns-url": "ACTIVITYD_APNS_URL"} {
		if got := settings.Name(f.Lookup(flag)); got != want {
			t.Errorf("%s is called %s, want %s", flag, got, want)
		}
	}
}

// A command without settings needs no file; a command with settings needs the named file.
func TestTheFileIsMissing(t *testing.T) {
	t.Parallel()
	_, all := newFlags()
	loader := settings.Loader{Settings: all, Environ: []string{"ACTIVITYD_CONFIG=/no/file"}}
	must(t, loader.Load(pflag.NewFlagSet("", pflag.ContinueOnError), ""))
	_, f := newFlags()
	if err := loader.Load(f, ""); err == nil || !strings.HasPrefix(err.Error(), "--config (ACTIVITYD_CONFIG): open /no/file") {
		t.Error(err)
	}
}

// Bounds limit the allowed values.
func TestBounds(t *testing.T) {
	t.Parallel()
	for value, want := range map[int]string{0: "is 0: want 1 to 3 sets/s", 1: "", 3: "", 4: "is 4: want 1 to 3 sets/s"} {
		var n int
		err := settings.NewNumber(&n, value, 1, 3, "sets/s").Check()
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d: %v, want %q", value, err, want)
		}
	}
	var d time.Duration
	n := settings.NewNumber(&d, time.Second, 0, time.Minute, "")
	must(t, n.Set("61s"))
	if err := n.Check(); err == nil || err.Error() != "is 1m1s: want 0s to 1m" {
		t.Error(err)
	}
	if err := n.Set("61"); err == nil || err.Error() != "want 0s to 1m" {
		t.Error(err)
	}
}
