package otelproto

// IsCaseSet is for the benchmark that compares reading a case with WhichOneof.
func IsCaseSet(payload any, offset uintptr) bool { return caseAt(payload, offset) != nil }
