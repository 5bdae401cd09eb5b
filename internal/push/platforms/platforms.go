// Package platforms lists the platforms that activityd sends to.
package platforms

import (
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
)

// All returns them, in the order of the documents.
func All() []push.Kind {
	return []push.Kind{apns.Kind(), webpush.Kind(), fcm.Kind()}
}
