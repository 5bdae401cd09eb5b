package auth_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
)

const (
	someHash  = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of test
	otherHash = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" // of test2
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := "# who may ask\n\n" +
		"  home.page-1\tread   " + someHash + "  # the web servers\r\n" +
		"uploads write,read " + strings.Replace(otherHash, "60303ae22b998861", "60303AE22B998861", 1) + " rate=100/s"
	got, err := auth.Parse(text)
	want := []auth.Token{
		{Name: "home.page-1", Scopes: auth.Read, Hash: auth.HashOf("test")},
		{Name: "uploads", Scopes: auth.Read | auth.Write, Hash: auth.HashOf("test2"), Limit: auth.Limit{PerSecond: 100, Burst: 100}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\nwant (-), got (+):\n%s", err, diff)
	}
	for _, text := range []string{"", "\n", "# nobody\n"} {
		if got, err := auth.Parse(text); err != nil || len(got) > 0 {
			t.Errorf("Parse(%q) = %v, %v", text, got, err)
		}
	}
}

// The error names the line and what is wrong, and quotes nothing that could be a
// secret.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const secret = "act_S3CRETS3CRETS3CRETS3CRETS3"
	for line, want := range map[string]string{
		secret:                                                      "want: name scopes sha256:hash",
		"a read":                                                    "want: name scopes sha256:hash",
		"a read " + secret:                                          "the secret itself does not belong here",
		"a read sha256:" + secret:                                   "the secret itself does not belong here",
		"a read " + someHash[:70]:                                   "64 hexadecimal digits",
		"a read " + someHash + "00":                                 "64 hexadecimal digits",
		"a read " + someHash[7:]:                                    "64 hexadecimal digits",
		"a read SHA256:" + someHash[7:]:                             "64 hexadecimal digits",
		"a read " + auth.HashOf("").String():                        "hash of an empty secret",
		"a " + secret + " " + someHash:                              "want scopes from read, write, admin, inspect and work",
		"a read,, " + someHash:                                      "want scopes",
		"a Read " + someHash:                                        "want scopes",
		secret + " read " + someHash:                                "the name begins like a secret",
		"-a read " + someHash:                                       "want a name",
		"a=b read " + someHash:                                      "want a name",
		"ä read " + someHash:                                        "want a name",
		strings.Repeat("a", 65) + " read " + someHash:               "want a name of 1 to 64",
		"a read " + someHash + " " + secret:                         "want: name scopes sha256:hash [rate=100/s] [queues=mail,thumbnails]",
		"a work " + someHash:                                        "the scope work needs queues",
		"a read " + someHash + " queues=mail":                       "the scope work needs queues",
		"a admin " + someHash + " queues=mail":                      "the scope work needs queues",
		"a work " + someHash + " queues=":                           "want queues",
		"a work " + someHash + " queues=mail,":                      "want queues",
		"a work " + someHash + " queues=mail,mail":                  "want queues",
		"a work " + someHash + " queues=Mail":                       "want queues",
		"a work " + someHash + " queues=" + strings.Repeat("m", 33): "want queues",
		"a work " + someHash + " queues=a queues=b":                 "want: name",
		"a read " + someHash + " rate=1/s rate=2/s":                 "want: name",
		"a read " + someHash + " rate=0/s":                          "want a rate of 1 to 1000000",
		"a read " + someHash + " rate=1000001/s":                    "want a rate",
		"a read " + someHash + " rate=1/d":                          "want a rate",
		"a read " + someHash + " rate=1":                            "want a rate",
		"a read " + someHash + " rate=":                             "want a rate",
		"good admin " + someHash:                                    "a line above has the name good already",
		"a read " + otherHash:                                       "a line above has this secret already",
	} {
		got, err := auth.Parse("good write " + otherHash + "\n# comment\n" + line + "\n")
		if err == nil || got != nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("%q: %v, %v, want line 3 and %q", line, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("%q: the secret is shown: %v", line, err)
		}
	}
}

func TestIssue(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		token, secret := issue(t, "a", auth.Read, auth.Limit{})
		if !strings.HasPrefix(secret, "act_") || len(secret) < len("act_")+26 || seen[secret] {
			t.Fatalf("secret %q", secret)
		}
		seen[secret] = true
		if token.Hash != auth.HashOf(secret) || strings.Contains(token.String(), secret[4:]) {
			t.Fatalf("the line %q of %q", token, secret)
		}
	}
	for name, scopes := range map[string]auth.Scope{"": auth.Read, "a b": auth.Read, "act_a": auth.Read, "a": 0} {
		if _, _, err := auth.Issue(name, scopes, auth.Limit{}); err == nil {
			t.Errorf("Issue(%q, %d) took it", name, scopes)
		}
	}
}

// Whatever is in a file, it is refused or means the same when it is written
// again, and no error quotes what may be a secret.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a read " + someHash, "a read,write,admin " + someHash + " rate=100/s # none\n\nb write " + otherHash,
		"a work " + someHash + " rate=1/s queues=mail,thumbs", "a read act_SECRET", "a read sha256:zz", "\xff\x00", "a\u2028read " + someHash, "a read " + someHash + " rate=1/m=2",
		"a read " + someHash + "\na read " + otherHash,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := auth.Parse(text)
		if err != nil {
			if tokens != nil || !strings.HasPrefix(err.Error(), "line ") || len(err.Error()) > 2000 {
				t.Fatalf("Parse(%q) = %v, %v", text, tokens, err)
			}
			return
		}
		again, err := auth.Parse(lines(tokens...))
		if diff := cmp.Diff(tokens, again); err != nil || diff != "" {
			t.Fatalf("%q: %v\n%s", text, err, diff)
		}
		for _, token := range tokens {
			if token.Scopes == 0 || token.Name == "" || token.Limit.PerSecond > 0 && token.Limit.Burst < 1 {
				t.Fatalf("%q: taken as %+v", text, token)
			}
		}
	})
}
