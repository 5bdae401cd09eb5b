package main

// rates are how often something happens, a second.
type rates struct {
	Reads      float64 `json:"reads"`
	Uploads    float64 `json:"uploads"`
	Changes    float64 `json:"contact_changes"`
	SweepSets  float64 `json:"sets_swept"`
	Recipients float64 `json:"recipients,omitzero"` // of events
	Deliveries float64 `json:"deliveries,omitzero"` // to devices
}

// flickr is a crowd of the given size with the published figures of Flickr.
func flickr(members float64) crowd {
	return crowd{
		Members: members, LeastContacts: 2.1, ContactsTail: 1.1, MostContacts: 26_000, FollowTail: 2.2, UploadTail: 3, Uploaders: 0.61,
	}
}
