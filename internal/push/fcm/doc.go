// Package fcm sends notifications to Android devices by Firebase Cloud Messaging, HTTP v1.
//
// It authenticates as a service account: a JWT that is signed with the account's key
// (RS256) is exchanged for an access token, which is kept until shortly before its end, for
// all messages.
//
// FCM keeps no message ids: a message that is sent twice may be shown twice, unless the
// device replaces the first one, which it does because both have the same notification tag.
// For a device that is away, FCM keeps the last message of each collapse key, and of four
// keys at most; without a key of its own a notification would collapse with all others of
// the app. A silent message has none: the four keys are for what a person is to see, and an app that lost one has nothing
// to make up for it.
package fcm
