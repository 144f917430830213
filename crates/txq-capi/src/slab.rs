//! Values with numbers that are never valid twice: a number that the program uses again, or makes up, is found.

/// Values by number. The lower half of a number is the place, the upper half counts the uses of the place, from 1.
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    uses: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// Returns an empty slab that has room for `places` values without an allocation.
    pub(crate) fn with_capacity(places: usize) -> Self {
        Self { places: Vec::with_capacity(places), free: Vec::with_capacity(places) }
    }

    /// Keeps a value; returns its number.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, value: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.uses = place.uses.wrapping_add(1).max(1);
        place.value = Some(value);
        u64::from(place.uses) << 32 | u64::from(index)
    }

    /// Removes a value; `None` if the number names none.
    #[inline]
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let place = self.places.get_mut(number as u32 as usize)?;
        if u64::from(place.uses) != number >> 32 {
            return None;
        }
        let value = place.value.take()?;
        self.free.push(number as u32);
        Some(value)
    }

    /// Returns a value; `None` if the number names none.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let place = self.places.get(number as u32 as usize)?;
        if u64::from(place.uses) == number >> 32 { place.value.as_ref() } else { None }
    }

    /// Returns a value to change; `None` if the number names none.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.places.get_mut(number as u32 as usize)?;
        if u64::from(place.uses) == number >> 32 { place.value.as_mut() } else { None }
    }

    /// Returns how many values there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Removes all values.
    pub(crate) fn clear(&mut self) {
        for (index, place) in self.places.iter_mut().enumerate() {
            if place.value.take().is_some() {
                self.free.push(index as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_value_once() {
        let mut slab = Slab::with_capacity(2);
        let numbers: Vec<u64> = (0..4).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.len(), 4);
        assert_eq!(slab.take(numbers[2]), Some(2));
        assert_eq!(slab.take(numbers[2]), None);
        assert_eq!(slab.get(numbers[2]), None);
        let again = slab.insert(9);
        assert_ne!(again, numbers[2]);
        assert_eq!(slab.take(numbers[2]), None);
        assert_eq!(slab.get(again), Some(&9));
        for wrong in [0, 7, u64::MAX, 5 << 32] {
            assert_eq!(slab.take(wrong), None);
        }
        slab.clear();
        assert_eq!((slab.len(), slab.take(numbers[0]), slab.take(again)), (0, None, None));
        assert_eq!(slab.free.len(), 4);
    }
}
