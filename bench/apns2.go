package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/token"
	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/testing/apnstest"
)

// newAPNs2 returns a client of the package that most Go programs send to APNs with.
func newAPNs2(server *apnstest.Server) (*apns2.Client, error) {
	key, err := token.AuthKeyFromBytes(server.Key())
	if err != nil {
		return nil, err
	}
	client := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: server.KeyID(), TeamID: server.TeamID()})
	client.Host = server.URL()
	client.HTTPClient.Transport = &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: server.RootCAs(), MinVersion: tls.VersionTLS12}}
	return client, nil
}

// byAPNs2 sends the same messages with apns2, as its documentation does: some workers, each
// of which waits for an answer before it sends the next message.
func (p *pushBench) byAPNs2(ctx context.Context, client *apns2.Client) error {
	const workers = 8
	e := p.event()
	return p.loop(ctx, workers, func(ctx context.Context, i int) error {
		text, err := apns.Payload(&push.Message{Notification: push.Notification{
			Event: "1", Type: e.Type, Actor: e.Actor, Object: e.Object, Title: e.Title, Body: e.Body, Data: e.Data, Count: 1,
		}})
		if err != nil {
			return err
		}
		r, err := client.PushWithContext(ctx, &apns2.Notification{
			ApnsID: fmt.Sprintf("00000000-0000-8000-8000-%012x", i), DeviceToken: p.tokens[i], Topic: p.apple.Topic(), CollapseID: "c",
			Expiration: time.Now().Add(time.Hour), Priority: apns2.PriorityHigh, PushType: apns2.PushTypeAlert, Payload: text,
		})
		if err == nil && !r.Sent() {
			err = fmt.Errorf("%d %s", r.StatusCode, r.Reason)
		}
		return err
	})
}
