package channel

// Rules gives the names and classes of the table's rows.
func Rules() [][2]string {
	var rows [][2]string
	for _, r := range rules() {
		rows = append(rows, [2]string{r.name, r.class.String()})
	}
	return rows
}

// ClassifyRow is Classify with the row that decided.
func ClassifyRow(f Failure) (row string, class Class) { return classify(&f) }
