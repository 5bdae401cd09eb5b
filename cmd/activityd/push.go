package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/settings"
)

// pushConfig is what the settings about push services say. Each platform has keys, or is off.
type pushConfig struct {
	apnsKey, apnsKeyID, apnsTeamID, apnsTopic, apnsURL string
	webpushKey, webpushSubject                         string
	webpushAllow                                       string
	fcmCredentials, fcmURL                             string
	tlsRoots                                           string
}

func (p *pushConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&p.apnsKey, "apns-key", "", "`file` of the key for Apple's push service (.p8); read again when it changes, as are the other two")
	f.StringVar(&p.apnsKeyID, "apns-key-id", "", "the key's `id`; without it, that in the file's name AuthKey_ID.p8")
	f.StringVar(&p.apnsTeamID, "apns-team-id", "", "the `id` of the team that the key belongs to; required with the key")
	f.StringVar(&p.apnsTopic, "apns-topic", "", "the app's bundle `id`; required with the key")
	f.StringVar(&p.apnsURL, "apns-url", "", "`URL` to send to instead of Apple's two hosts")
	f.StringVar(&p.webpushKey, "webpush-key", "", "`file` of the private VAPID key for browsers; activityd push keys makes one")
	f.StringVar(&p.webpushSubject, "webpush-subject", "", "how push services reach you: `mailto:address` or an https URL; required with the key")
	p.allowFlag(f)
	f.StringVar(&p.fcmCredentials, "fcm-credentials", "", "`file` of the service account (JSON) for Firebase Cloud Messaging")
	f.StringVar(&p.fcmURL, "fcm-url", "", "`URL` to send to instead of Google's; access tokens come from where the service account's file says")
	f.StringVar(&p.tlsRoots, "tls-roots", "", "`file` of the CAs, in PEM, that push services are known by instead of the system's")
	settings.NoFlag(f, "apns-key", "apns-key-id", "apns-team-id", "apns-topic", "apns-url", "webpush-key", "webpush-subject",
		"fcm-credentials", "fcm-url", "tls-roots")
}

func (p *pushConfig) allowFlag(f *pflag.FlagSet) {
	f.StringVar(&p.webpushAllow, "webpush-allow", "", "`networks` whose push services are sent to although they are not public, as in 10.1.0.0/16,127.0.0.1/32")
	settings.NoFlag(f, "webpush-allow")
}

// check calls want for each value that cannot be.
func (p *pushConfig) check(want func(flag string, ok bool, format string, args ...any)) {
	// Of the settings of a platform, the first one switches it on and needs the others.
	for _, platform := range [][]struct {
		flag, value string
		needed      bool
	}{
		{{"apns-key", p.apnsKey, true}, {"apns-team-id", p.apnsTeamID, true}, {"apns-topic", p.apnsTopic, true}, {"apns-key-id", p.apnsKeyID, false}, {"apns-url", p.apnsURL, false}},
		{{"webpush-key", p.webpushKey, true}, {"webpush-subject", p.webpushSubject, true}},
		{{"fcm-credentials", p.fcmCredentials, true}, {"fcm-url", p.fcmURL, false}},
	} {
		given := ""
		for _, s := range platform {
			if given == "" && s.value != "" {
				given = s.flag
			}
		}
		for _, s := range platform {
			want(s.flag, given == "" || !s.needed || s.value != "", "is missing: %s needs it", settings.Variable(given))
		}
	}
	for _, at := range []struct{ flag, value string }{{"apns-url", p.apnsURL}, {"fcm-url", p.fcmURL}} {
		u, err := url.Parse(at.value)
		want(at.flag, at.value == "" || err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "",
			"want https://host or https://host:port")
	}
	_, err := p.allowed()
	want("webpush-allow", err == nil, "%v", err)
}

// allowed returns the networks of ACTIVITYD_WEBPUSH_ALLOW.
func (p *pushConfig) allowed() (list []netip.Prefix, err error) {
	for text := range strings.FieldsFuncSeq(p.webpushAllow, func(r rune) bool { return r == ',' || r == ' ' }) {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q: want networks as in 10.1.0.0/16,127.0.0.1/32", text)
		}
		list = append(list, network)
	}
	return list, nil
}

// checkAddress checks the address of a device. It needs no keys: those may be in the processes
// with workers alone.
func (p *pushConfig) checkAddress() api.AddressChecker {
	allow, _ := p.allowed() // it was checked
	return func(ctx context.Context, platform push.Platform, a push.Address) error {
		switch platform {
		case push.APNs:
			return (*apns.Sender)(nil).Check(ctx, a)
		case push.WebPush:
			return webpush.Check(ctx, a, allow)
		case push.FCM:
			return fcm.Check(a)
		}
		return errors.New("there is no such platform")
	}
}

// payload returns what is sent to a device, without its address.
func payload(m *push.Message) ([]byte, error) {
	switch m.Device.Platform {
	case push.APNs:
		return apns.Payload(m)
	case push.WebPush:
		return webpush.Payload(m)
	case push.FCM:
		return fcm.Payload(m)
	}
	return nil, errors.New("there is no such platform")
}

// senders are those of the platforms that have keys.
type senders struct {
	byPlatform map[push.Platform]push.Sender
	off        []push.Platform  // those without
	reloaders  []*auth.Reloader // of their keys
	closers    closers
	changed    *func(push.Platform) // is told whose keys were replaced; nil in it: no one is
}

// load makes the senders of the platforms that have keys, and logs which have none. They
// connect to nothing yet.
func (p *pushConfig) load(ctx context.Context, log *slog.Logger) (s senders, err error) {
	s = senders{byPlatform: make(map[push.Platform]push.Sender), changed: new(func(push.Platform))}
	roots, err := p.roots()
	errs := []error{err}
	follow := func(platform push.Platform, flag, file string, use func(text []byte) error) bool { //nolint:contextcheck // files are read at the start
		loaded, err := s.follow(platform, flag, file, log, use)
		errs = append(errs, err)
		return loaded
	}
	add := func(platform push.Platform, to push.Sender, closeIt func()) {
		s.byPlatform[platform] = to
		s.closers.push(func() error { closeIt(); return nil })
	}

	var toAPNs *apns.Sender
	if follow(push.APNs, "apns-key", p.apnsKey, func([]byte) (err error) {
		if toAPNs != nil {
			return toAPNs.Reload()
		}
		toAPNs, err = apns.New(apns.Options{
			KeyFile: p.apnsKey, KeyID: p.apnsKeyID, TeamID: p.apnsTeamID, Topic: p.apnsTopic, URL: p.apnsURL, RootCAs: roots, Log: log,
		})
		return err
	}) {
		add(push.APNs, toAPNs, toAPNs.Close)
	}
	allow, _ := p.allowed() // it was checked
	var toWeb *webpush.Sender
	if follow(push.WebPush, "webpush-key", p.webpushKey, func([]byte) (err error) {
		if toWeb != nil {
			return toWeb.Reload()
		}
		toWeb, err = webpush.New(webpush.Options{
			KeyFile: p.webpushKey, Subject: p.webpushSubject, Allow: allow, RootCAs: roots, Log: log,
		})
		return err
	}) {
		add(push.WebPush, toWeb, toWeb.Close)
	}
	var toFCM *fcm.Sender
	if follow(push.FCM, "fcm-credentials", p.fcmCredentials, func(text []byte) (err error) {
		if toFCM != nil {
			return toFCM.SetCredentials(text)
		}
		toFCM, err = fcm.New(fcm.Options{Credentials: text, URL: p.fcmURL, RootCAs: roots, Log: log})
		return err
	}) {
		add(push.FCM, toFCM, toFCM.Close)
	}

	if len(s.off) > 0 {
		log.InfoContext(ctx, "push is off for want of keys", "platforms", s.off)
	}
	return s, errors.Join(errs...)
}

// follow has use make the sender of a platform by its file, if there is one, and then replace
// its key whenever the file changes.
func (s *senders) follow(platform push.Platform, flag, file string, log *slog.Logger, use func(text []byte) error) (loaded bool, err error) {
	if file == "" {
		s.off = append(s.off, platform)
		return false, nil
	}
	changed := s.changed
	r, err := auth.LoadSecret(settings.Variable(flag), file, func(text []byte) error {
		err := use(text)
		if err == nil && *changed != nil {
			(*changed)(platform)
		}
		return err
	}, log)
	if err != nil {
		return false, fmt.Errorf("%s: %w", settings.Variable(flag), err)
	}
	s.reloaders = append(s.reloaders, r)
	return true, nil
}

// roots returns the CAs of ACTIVITYD_TLS_ROOTS; nil: the system's.
func (p *pushConfig) roots() (*x509.CertPool, error) {
	if p.tlsRoots == "" {
		return nil, nil //nolint:nilnil // that is what a tls.Config takes for the system's
	}
	text, err := os.ReadFile(p.tlsRoots)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate in PEM", p.tlsRoots)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.Variable("tls-roots"), err)
	}
	return pool, nil
}

func newPush() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Make keys for push, import devices, and look at what became of an event",
		Long: "Make keys for push, import devices, and look at what became of an event: which it was for, which not and\n" +
			"why, and what the push services said.",
		Example: "  activityd push keys webpush.pem\n  activityd push show task-4711",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPushKeys(), newPushShow(), newPushImport())
	return cmd
}

func newPushKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "keys FILE",
		Short: "Make the VAPID keys of Web Push: a file for ACTIVITYD_WEBPUSH_KEY",
		Long: "Make the pair of keys by which browsers' push services know this site (VAPID). The private key is\n" +
			"written to FILE, for you alone to read; a file that is there is never overwritten. The public key\n" +
			"is printed: it is what the site's pages give the browser as applicationServerKey.\n\n" +
			"Subscriptions are made for one pair: with another one, browsers that subscribed before are not\n" +
			"reached any more. All processes need the same file. Keep a copy.",
		Example: "  activityd push keys /etc/activityd/webpush.pem",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return makePushKeys(args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
}

// makePushKeys writes the private key to a new file, and prints the public one.
func makePushKeys(path string, out, notes io.Writer) (err error) {
	keys, err := webpush.GenerateKey()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the operator names it
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("FILE: %s is there already, and stays as it is: browsers subscribed for its key", path)
	}
	if err != nil {
		return fmt.Errorf("FILE: %w", err)
	}
	_, err = f.Write(keys.PEM)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("FILE: %w", err), os.Remove(path)) // a part of a key is of no use
	}
	sayf(notes, "The private key is in %s. This is the public one, for applicationServerKey:", path)
	_, err = fmt.Fprintln(out, keys.Public)
	return err
}
