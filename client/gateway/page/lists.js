// Small tables and lists that are filled again and again: only what changed is touched, so that a screen
// reader's place, a selection and the scroll bar stay where they are.

/** A table with these columns: { label, kind? }; returns what fills it with rows of texts. */
export function makeTable (parent, label, columns) {
  const table = document.createElement('table')
  const caption = table.createCaption()
  caption.textContent = label
  caption.className = 'spoken'
  const head = table.createTHead().insertRow()
  for (const column of columns) {
    const cell = document.createElement('th')
    cell.scope = 'col'
    cell.textContent = column.label
    cell.className = column.kind ?? ''
    head.append(cell)
  }
  const body = table.createTBody()
  parent.append(table)
  showMore(parent, table, label)
  return rows => {
    while (body.rows.length > rows.length) body.deleteRow(-1)
    rows.forEach((texts, i) => {
      const row = body.rows[i] ?? addRow(body, columns)
      texts.forEach((text, j) => setText(row.cells[j], text))
    })
  }
}

/** Marks a box whose table goes on to the right. One that scrolls can be scrolled by keys. */
function showMore (box, table, label) {
  box.setAttribute('role', 'group')
  box.setAttribute('aria-label', label)
  const look = () => {
    box.classList.toggle('more', box.scrollWidth - box.clientWidth - box.scrollLeft > 1)
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight
    if (scrolls !== box.hasAttribute('tabindex')) scrolls ? box.setAttribute('tabindex', 0) : box.removeAttribute('tabindex')
  }
  box.addEventListener('scroll', look, { passive: true })
  const sizes = new ResizeObserver(look)
  sizes.observe(box)
  sizes.observe(table)
}

function addRow (body, columns) {
  const row = body.insertRow()
  for (const column of columns) row.insertCell().className = column.kind ?? ''
  return row
}

/** Sets an element's text if it is another one. */
export function setText (element, text) {
  if (element.firstChild?.data !== text || element.childNodes.length !== 1) element.textContent = text
}

/** Sets an attribute if it is another one. */
export function setAttribute (element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value)
}

/** A list of terms and what they are, again only where it changed. */
export function fillTerms (list, pairs) {
  while (list.children.length > pairs.length) list.lastElementChild.remove()
  pairs.forEach(([term, text], i) => {
    let part = list.children[i]
    if (!part) {
      part = document.createElement('div')
      part.append(document.createElement('dt'), document.createElement('dd'))
      list.append(part)
    }
    setText(part.children[0], term)
    setText(part.children[1], text)
  })
}
