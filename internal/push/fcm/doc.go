// Package fcm sends notifications to Android devices by Firebase Cloud Messaging, HTTP v1.
//
// It authenticates as a service account: a JWT that is signed with the account's key
// (RS256) is exchanged for an access token, and that is kept until shortly before its end, for
// all messages.
//
// FCM keeps no message ids: a message that is sent twice may be shown twice, unless the
// device replaces the first, as it does because both have the same notification tag.
// For a device that is away, FCM keeps the last message of each collapse key, and of four
// keys at most; without a key of its own a notification would collapse with the rest of
// the app. A silent message has no key: the four are for a person to see, and an app that lost one has nothing
// to make up for it.
package fcm
